"""Technical terms in both languages: a question in one finds a text in the other.

The same form as `server.store.study_concepts`.
"""

from __future__ import annotations

COMPUTING = """
algorithm: algorithm | 算法
wireless: wireless, wifi, wi fi, wlan, 802.11 | 无线
array: array | 数组
pointer: pointer | 指针
stack: stack | 栈, 堆栈
queue: queue | 队列
linkedlist: linked list | 链表
tree: tree | 树
graph: graph | 图
node: node, vertex | 节点, 结点, 顶点
leaf: leaf, leaves | 叶子, 叶节点, 叶结点
edge: edge | 边
hash: hash, hashing, hash table | 哈希, 散列
sort: sort, sorting | 排序
search: search, lookup, look up | 查找, 搜索, 检索
recursion: recursion, recursive | 递归
loop: loop, iterate, iteration, cycle | 循环, 迭代, 环路
variable: variable | 变量
function: function, routine | 函数
interface: interface, api | 接口
classb: class, object | 类, 对象
template: template | 模板
iterator: iterator | 迭代器
thread: thread, multithreaded | 线程, 多线程
process: process | 进程
scheduleb: scheduler, scheduling | 调度
memory: memory, ram | 内存, 存储器
cache: cache, cached | 缓存, 高速缓存
buffer: buffer, buffer pool, buffering | 缓冲, 缓冲池, 缓冲区
page: page | 页面, 页
disk: disk, hard drive, ssd | 磁盘, 硬盘
file: file | 文件
evict: evict, eviction, replace, replacement, replacer | 替换, 淘汰, 驱逐, 换出
pin: pin, pinned, unpin | 钉住, 固定
dirty: dirty | 脏页, 脏
flush: flush, write back, write out, force | 刷盘, 刷回, 写回, 落盘
lock: lock, locking, mutex, latch | 锁, 加锁, 封锁
deadlock: deadlock | 死锁
starvation: starve, starvation | 饿死, 饥饿
granted: grant, release a lock | 授予, 授权
transaction: transaction | 事务
commit: commit | 提交事务, 提交
isolation: isolation, isolation level | 隔离, 隔离级别
serializable: serializable, serializability, serial | 可串行化, 串行
conflict: conflict | 冲突
timestamp: timestamp, time stamp | 时间戳
versionb: multiversion, mvcc, snapshot | 多版本, 快照
recovery: recovery, recover, crash recovery | 恢复, 故障恢复
logb: log, logging, write ahead | 日志, 预写
redo: redo | 重做
undo: undo | 撤销, 回滚
checkpoint: checkpoint, intermediate submission, milestone | 检查点, 中期检查
database: database, dbms | 数据库
table: table, relation | 表, 关系
row: row, tuple, record | 行, 元组, 记录
column: column, attribute, field | 列, 属性, 字段
key: key, primary key | 键, 主键, 码
index: index, indexes, indices | 索引
query: query, sql | 查询, 语句
join: join | 连接
predicate: filter, predicate, where clause | 谓词, 条件, 过滤
aggregate: aggregate, aggregation, group by | 聚合, 分组
cost: cost, selectivity, cardinality | 代价, 选择率, 基数, 行数
optimizer: optimizer, optimize, optimization | 优化, 优化器
plan: plan, execution plan | 执行计划, 计划
view: view | 视图
schema: schema | 模式
histogram: histogram, statistics | 直方图, 统计
slot: slot, slotted | 槽
header: header, head | 头部, 表头, 首部
bit: bit, bitmap | 位, 比特, 位图
byte: byte | 字节
integer: integer, int | 整数
string: string, varchar | 字符串, 变长
network: network | 网络
protocol: protocol | 协议
packet: packet, datagram | 分组, 数据包, 报文
segment: segment | 报文段
frame: frame | 帧
router: router, routing | 路由器, 路由
switch: switch | 交换机
address: address | 地址
subnet: subnet, prefix, netmask | 子网, 前缀, 掩码
gateway: gateway, nat | 网关
port: port | 端口
socket: socket | 套接字
connection: connection, connect, handshake | 建立连接, 握手
client: client | 客户端
server: server | 服务器
host: host, machine, computer | 主机, 机器, 电脑
browser: browser | 浏览器
congestion: congestion, congestion window, cwnd | 拥塞
flowcontrol: flow control, receive window | 流量控制
ack: acknowledgement, acknowledge, ack | 确认
sequence: sequence number | 序号
windowb: window, sliding window | 窗口
retransmit: retransmission, retransmit | 重传
latency: latency, delay, round trip, rtt | 延迟, 时延, 往返
throughput: throughput, bandwidth, data rate | 吞吐, 带宽, 速率
checksum: checksum, crc | 校验和, 校验, 循环冗余校验
collision: collision | 碰撞, 冲突
broadcast: broadcast | 广播
encryption: encryption, encrypt, tls, cipher | 加密, 密码学
certificateb: certificate | 证书
firewall: firewall | 防火墙
domain: domain name, dns, name server, resolver | 域名
capture: capture, wireshark, trace, tcpdump | 抓包, 捕获
simulator: simulator, simulation, simulate | 仿真, 模拟
kernel: kernel | 内核
virtualmachine: virtual machine, vm, container, docker | 虚拟机, 容器
interrupt: interrupt | 中断
exception: exception, throw | 异常
test: test, unit test, test case | 测试, 用例, 测试用例
debug: debug, debugger, debugging, gdb, valgrind, sanitizer | 调试
repository: repository, git, repo, clone, branch | 仓库, 代码库
library: library, package | 库, 软件包
code: code, source, program | 代码, 程序, 源码
command: command, command line, shell, terminal | 命令, 终端, 命令行
install: install, installation, set up, setup | 安装, 配置, 搭建
parameter: parameter, argument | 参数
model: model | 模型
training: train, training | 训练
neural: neural network | 神经网络
gradient: gradient | 梯度
dataset: dataset, data set | 数据集
overfit: overfit, overfitting, regularization | 过拟合, 正则化
probability: probability, chance, random | 概率, 随机
distribution: distribution | 分布
matrix: matrix | 矩阵
vector: vector | 向量
derivative: derivative | 导数
integral: integral | 积分
"""

ENGINEERING = """
sensor: sensor, transducer, gauge | 传感器, 变换器
measure: measure, measurement | 测量, 检测, 测
signal: signal | 信号
noise: noise, interference, disturbance | 噪声, 干扰
amplifier: amplifier, amplify, gain | 放大器, 放大, 增益
filter: filter | 滤波, 滤波器
voltage: voltage, potential | 电压, 电势, 电位
current: current | 电流
resistance: resistance, resistor | 电阻
capacitor: capacitor, capacitance, capacitive | 电容
inductor: inductor, inductance, coil | 电感, 线圈
bridge: bridge, wheatstone | 电桥, 桥路
magnetic: magnet, magnetic, hall effect | 磁, 磁场, 霍尔
temperature: temperature, thermal, heat | 温度, 热, 温
thermocouple: thermocouple | 热电偶
coldjunction: cold junction, reference junction, cold end | 冷端, 参考端, 零度
strain: strain, strain gauge | 应变, 应变片
stress: stress, force, load | 应力, 力, 受力, 载荷
pressure: pressure | 压力
displacement: displacement, position | 位移
speed: speed, velocity, rotation, revolutions | 转速, 速度
light: light, optical, photoelectric | 光, 光电
linearity: linear, linearity, nonlinearity | 线性, 线性度, 非线性
hysteresis: hysteresis | 迟滞, 回差
sensitivity: sensitivity, sensitive | 灵敏度, 灵敏
resolution: resolution | 分辨力, 分辨率
repeatability: repeatability | 重复性
drift: drift, zero drift | 漂移, 零漂
offset: offset, zero point | 零位, 零点, 失调
calibrate: calibrate, calibration | 标定, 校准, 定标
compensate: compensate, compensation, correction | 补偿, 修正
rangeb: range, full scale | 量程, 范围, 满量程
dynamic: dynamic, response, time constant | 动态, 响应, 时间常数
wire: wire, lead, cable | 导线, 引线, 电缆, 接线
ground: ground, earth, shield | 接地, 屏蔽
power: power, supply, battery | 电源, 供电, 功率, 电池
meter: meter, oscilloscope, multimeter | 示波器, 万用表, 电压表, 表头
digital: digital, converter, adc | 数字, 转换, 模数
glue: glue, adhesive, attach, stick | 粘贴, 胶
materialb: material, metal, semiconductor, alloy | 材料, 金属, 半导体, 合金
energy: energy | 能量
frequency: frequency, hertz | 频率
accuracyb: accuracy class, systematic error, random error, gross error | 系统误差, 随机误差,
  粗大误差
control: control, controller, feedback | 控制, 反馈
motor: motor | 电机, 马达
stability: stable, stability | 稳定, 稳定性
density: density | 密度
volume: volume | 体积
mass: mass, weight of | 质量
chemical: chemical, reaction | 化学, 反应
cell: cell | 细胞
"""
