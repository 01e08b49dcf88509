"""Words of university life and of everyday speech that mean about the same, in both languages.

One line a concept: its key, then words and phrases. English ones match in every inflected form,
Chinese ones wherever they stand; indented lines go on with the one before. A text that holds one of
them is also found by the others. `<word` and `>word` behind an English phrase: it does not count
right after that word, or right before it.
"""

from __future__ import annotations

STUDY = """
deadline: deadline, ddl, due, hand in by, by when, cut off, closing date | 截止, 截至, 期限,
  什么时候交, 几号交, 哪天交, 最晚, 最迟
submit: submit, submission, hand in, handed in, turn in, deliverable, upload | 提交, 上交,
  交什么, 要交, 递交, 上传, 交上来, 怎么交, 补交
late: late, overdue, delay, lateness, too late | 迟交, 晚交, 逾期, 过期,
  迟到, 拖延, 拖了, 晚了, 超时, 超过一周
teacher: lecturer, professor, instructor, teacher, prof | 主讲, 教师, 老师, 教授, 讲师, 任课
assistant: teaching assistant, assistant, ta, tutor | 助教, 研究生
officehours: office hour, consultation hour, ask question in person, question session, talk to,
  drop in | 答疑, 办公时间, 接待时间, 当面提问, 当面问
exam: exam, examination, final >grade >mark >score >point >result, midterm, written test | 考试,
  期中考, 期末考, 考场, 开考, 期末, 期中, 考卷, 试卷
midterm: midterm, mid term | 期中
final: final exam, final >grade >mark >score >point >result | 期末
makeup: make up exam, makeup, make up >of, made up >of <grade <mark <score <point <result, redo,
  resit, re sit, retake, second attempt | 补考, 重考, 补做, 补测, 缓考, 重修
grade: grade, mark, score, assessment, point, total | 成绩, 评分, 分数, 打分, 得分, 总评, 总分,
  计分, 记分, 扣分, 满分
regrade: regrade, appeal, disagree, dispute, complain, grade wrongly, complaint | 复核, 异议,
  重新评分, 申诉, 查分, 改错了, 判错
inspection: inspection, look at my exam, look at my paper, correct exam, correct paper,
  view the exam | 查卷, 看卷, 阅卷
weight: weight, percent, percentage, %, count toward, count for, worth, share, weigh,
  proportion, grade made up, mark made up, grade composed, grade breakdown, grade composition,
  grade consist, grade computed, grade calculated | 成绩构成, 成绩由, 成绩怎么算, 比例, 占比, 权重,
  百分之, 占多少, 占总评, 各占
penalty: penalty, deduct, deduction, lose point, lose mark, minus, subtract | 扣分,
  折算, 减分, 倒扣
zero: zero, no point, nothing | 零分, 记零, 0 分
room: room, location, venue, where, building, take place, held | 地点, 教室, 机房, 哪里, 哪儿,
  在哪, 哪个楼, 什么地方, 房间, 实验室
bring: bring, carry, take along, permit, aid, take into | 携带, 可以带, 能带, 带什么, 带哪些,
  允许带
cheatsheet: cheat sheet, sheet of note, note sheet, formula sheet, handwritten | 公式表, 手写,
  小抄, 一页纸, 开卷, 闭卷
calculator: calculator | 计算器
mobile: phone, mobile phone, cell phone, smartphone, mobile | 手机
phonenumber: phone number, telephone, telephone number, phone numbers, call | 手机号, 电话,
  电话号码, 联系电话, 手机号码
textbook: textbook, book, reading, reader, edition, chapter to read | 教材, 教科书, 课本, 读本,
  参考书
buy: buy, purchase, order, copy shop, secondhand, second hand, price, cost, cheap | 购买,
  价格, 多少钱, 费用, 二手
prerequisite: prerequisite, must have pass, before you enrol, prior knowledge, know before,
  required course, background | 先修, 先决条件, 选课前, 基础知识, 前置
enrol: enrol, enroll, enrolment, enrollment, register for the course | 选课, 注册课程
register: register, registration, sign up, enrol, apply | 注册, 报名, 登记, 申请, 预约, 接龙
drop: drop the course, withdraw, deregister, quit, cancel | 退课, 退选, 退出, 取消
forum: forum, discussion board, message board, post | 论坛, 讨论区, 课程群, 发帖, 群里
portal: portal, platform, website, course page, web page, system | 平台, 网站, 系统, 主页
cheating: cheat, plagiarism, copied, copy, same code, academic honesty, honesty, misconduct,
  dishonest | 作弊, 抄袭, 雷同, 学术诚信, 违纪, 舞弊
share: share code, show my code, give my code, publish, github, public repository,
  help each other | 分享, 公开, 互相, 借给
ill: ill, illness, sick, sickness, doctor, medical, hospital, fever, flu | 生病, 病假, 病了,
  医院, 病历, 发烧, 感冒, 诊断
excuse: excuse, reason, proof, certificate, evidence, doctor note, document | 理由, 证明, 假条,
  请假条, 凭证
leave: leave, absence, absent, miss, skip, not attend, cannot come, away | 请假, 缺席, 缺课,
  旷课, 逃课, 逃了, 没来, 不来, 翘课, 没去, 缺勤, 缺交
extension: extension, extend, more time, more day, postpone, extra time, later deadline | 延期,
  缓交, 推迟, 宽限, 延长, 多给
lateday: slip day, late day, grace day, grace period | 宽限日, 宽限期, 缓冲日
attend: attend, attendance, present, compulsory, mandatory, obligatory, roll call, sign in |
  考勤, 出勤, 签到, 点名, 到课, 必须参加, 出席
email: email, e mail, mail address, contact, reach, write to | 邮箱, 邮件, 联系, 写信
emailaddress: email address, mail address | 邮箱地址, 邮箱, 电子邮箱
team: pair, partner, team, teammate, in group, group of, alone, individual, together, people |
  分组, 小组, 两人, 组队, 组员, 同组, 每组, 一组, 几个人, 搭档, 独立完成, 单独, 三人, 人数
swap: swap, switch, change group, change team, other group, another group, exchange | 换班,
  换组, 换队, 调换, 交换, 换几个人, 另一个班
credits: credit, ects | 学分
hours: class hour, contact hour, workload, hours per week | 学时, 课时
online: online, video room, remote, remotely, zoom, recording, stream | 线上, 在线, 视频会议,
  远程, 录像, 录播, 直播
bonus: bonus, extra credit, extra point, additional point | 加分, 附加分, 奖励, 选做
optional: optional, voluntary, not required | 选做, 选修, 自愿, 可选
demo: demo, demonstrate, demonstration, presentation, present, show in person | 演示, 验收,
  展示, 答辩, 汇报
report: report, write up, writeup, paper | 报告
format: format, pdf, file name, layout, template, naming | 格式, 模板, 命名, 排版, 文件名
pages: page limit, how many page, page | 页数, 几页
ai: ai, chatgpt, copilot, language model, llm, chatbot, generative, gpt | 人工智能, 大模型,
  生成式, 语言模型
pass: pass the course, need to pass, pass grade, pass mark, minimum, fail, failing | 及格,
  通过本课程, 不及格, 挂科, 最低
lecture: lecture, class, taught, topic, session | 讲课, 上课, 授课, 有课, 课堂
lab: lab, laboratory, practical, experiment | 实验, 上机
homework: homework, assignment, problem set, exercise | 作业, 习题, 练习
quiz: quiz, quizzes, online test, short test, pop quiz, test each week | 小测, 测验, 随堂测, 测试
project: project, course project | 项目, 大作业, 课程设计
schedule: schedule, timetable, calendar, plan | 日程, 日历, 课表, 进度, 安排
holiday: holiday, break, no class, day off, vacation, no lecture, cancelled | 放假, 假期, 停课,
  节日, 休息, 不上课, 国庆, 清明
makeupclass: make up class, replacement class | 补课, 调课
guest: guest, guest lecture, visitor, invited, company, industry | 嘉宾, 企业, 讲座, 客座
dispensation: disability, accessibility, special need, extended time, impairment | 残疾, 特殊需要
athlete: athlete, sport, sports team, competition, contest, club, match, tournament | 比赛,
  竞赛, 运动员, 校队, 参赛, 集训
coach: coach, trainer | 教练
office: course office, student office, administration, secretary, office | 教务处, 教务, 办公室,
  学院办公室, 秘书
idcard: student card, id card, student id, identity card, passport | 校园卡, 学生证, 身份证, 证件
seat: seat, seating, seating plan | 座位, 座号
result: result, publish grade, announce, release, come out | 公布, 出成绩, 成绩出来, 发布,
  什么时候出
language: language, in english, in chinese, translate, translation, dictionary | 英文, 英语,
  中文, 双语, 翻译, 词典
answer: solution, answer, model answer, sample solution | 答案, 参考答案, 解答, 标准答案
average: average, mean, median, on average | 平均, 均值, 平均分, 中位数
failrate: fail rate, pass rate, failure rate | 挂科率, 通过率, 不及格率
lastyear: last year, previous year, past year, earlier exam, old exam, past exam | 去年, 往年,
  历年, 上一届
password: password, login, log in, account, credential | 密码, 登录, 账号, 用户名
salary: salary, paid, wage | 工资, 薪水, 报酬
parking: parking, park | 停车
food: food, drink, eat, snack, coffee, cafeteria, canteen | 饮料, 食物, 食堂
breakb: pause, toilet, leave the room | 上厕所, 离场, 提前交卷
graduate: graduate, graduation, thesis, degree | 毕业, 论文, 学位
scholarship: scholarship, tuition, fee | 奖学金, 学费
leaderboard: leaderboard, ranking, fastest, top ten | 排行榜, 排名, 前几名
hiddentests: hidden test, private test, secret test | 隐藏测试
publictests: public test, visible test, sample test | 公开测试
autograder: autograder, grader, automatic grading, grading server | 自动评测, 评测机, 判题, 评测
version: version, versions | 版本
safety: safety, safe, dangerous, danger, power off, burn | 安全, 危险, 断电
signature: sign, signature, signed | 签名, 签字, 补签
equipment: equipment, device, instrument, apparatus, tool | 器材, 仪器, 设备, 工具, 装置
damage: damage, broken, break, defect, repair, replace | 损坏, 坏了, 弄坏, 维修, 更换, 故障
rawdata: raw data, data sheet, measurement sheet | 原始数据, 数据纸, 数据记录
group: wechat group, chat group, qq | 微信群, 课程群, QQ群
difference: difference, differ, versus, vs, compare, comparison, distinguish | 区别, 差别, 不同,
  比较, 相比, 一回事, 是一样
advantage: advantage, benefit, good for, pro, better | 优点, 好处, 优势, 优于
drawback: disadvantage, drawback, downside, problem with, price, con | 缺点, 坏处, 代价, 不足
kinds: kind, type, category, categories, classify | 分类, 种类, 类型, 几类, 哪几类, 几种, 类别
method: method, way, technique, approach, measure against | 办法, 方法, 措施, 手段, 怎么处理, 方式
condition: condition, requirement, criteria, eligible, qualify | 条件, 要求, 资格
reason: reason, cause, because | 原因, 理由, 为啥, 造成
definition: definition, define, called, refers to | 定义, 称为, 叫做, 是指, 含义
formula: formula, equation, compute, calculate, calculation | 公式, 计算式, 怎么算, 计算, 算法公式
example: example, instance | 例题, 例子, 例如, 举例
limit: limit, maximum, at most, no more than, exceed, up to, smaller than | 上限, 最多, 不超过,
  限制, 至多, 最大
least: at least, minimum, no less than | 至少, 不少于, 最少, 最低, 下限
allowed: allow, permit, may, forbid, prohibit, not allowed, okay to | 允许, 禁止, 不得, 不许,
  能不能, 准许, 可不可以
"""

EVERYDAY = """
wait: wait, timeout, time out, after how long | 等待, 等多久, 超时
begin: begin, start, open, launch, at the beginning | 开始, 启动, 开放, 起始, 初始, 开机
endb: end, finish, close, stop, complete | 结束, 关闭, 停止, 完成
delete: delete, remove, erase, drop | 删除, 去掉, 移除, 剔除
add: add, insert, append, new | 添加, 插入, 新增, 增加, 加入, 加上
change: change, modify, update, edit, alter | 修改, 更改, 改变, 更新
repeat: repeat, retransmit, resend, send again, again | 重传, 重发, 重复, 再发
retry: restart, retry, rerun, start over, redo | 重启, 重来, 重新, 重做
forget: forget, forgot, forgotten, expire, age out | 忘记, 忘了, 过期, 失效
keep: keep, stay, valid, remain, hold, last, lease | 保留, 保持, 有效, 有效期, 保存
lose: lose, lost, loss, missing, drop | 丢失, 遗失, 丢包
use: in use, occupied, taken | 占用, 被占
kill: kill, abort, roll back, rollback, killed | 杀掉, 回滚, 中止, 撤销, 杀死
choose: choose, pick, select, decide which, selection | 选择, 挑选, 选出
avoid: avoid, prevent, protect, eliminate, reduce | 避免, 防止, 消除, 减小, 减少, 抑制
speedup: speed up, faster, accelerate, fast, quick, slow, slowly, performance | 加速, 提速,
  加快, 更快, 太慢, 性能
big: big, large, size, length, how long, bytes, smaller, larger | 大小, 多大, 长度, 尺寸, 字节
accuracy: accurate, accuracy, precise, precision, exact, error, wrong | 精度, 准确, 精确, 误差,
  不准, 偏差
wrong: wrong, incorrect, error, mistake, fail, bug, not work | 错误, 出错, 报错, 不对, 失败
crash: crash, segfault, segmentation fault, abort, hang, freeze | 崩溃, 段错误, 死机, 卡住
estimate: estimate, guess, estimation, approximately | 估计, 估算, 大约, 大概
wear: wear, clothes, glove, shoe, glasses | 手套, 眼镜
beforehand: beforehand, in advance, preview, prepare, preparation, ahead | 提前, 预习, 预先,
  准备, 事先, 预热
warmup: warm up, warmup, preheat | 预热, 提前开机, 先开多久
record: record, note down, log, write down | 记录, 记下, 记一次, 登记
interval: interval, every, each, how often, period, frequency | 间隔, 每隔, 多久一次, 周期, 频率
minute: minute, hour, second, millisecond | 分钟, 小时, 毫秒
position: position, place, adjacent, neighbour, next to, opposite | 位置, 相邻, 相对, 旁边
direction: direction, opposite direction, reverse | 方向, 相反, 反向
forbidden: forbidden, forbid, prohibit, ban | 禁止, 严禁, 不准
home: at home, own laptop, my laptop, own computer, my machine, own machine | 自己的电脑,
  笔记本, 家里, 本机
compile: compile, compiler, build, compilation | 编译, 构建
wrongflag: warning, werror, flag, compiler flag, option | 警告, 选项, 编译选项
font: font, handwriting, handwritten, printed, print | 手写, 打印, 字体
split: split, divide, cut, separate | 分裂, 拆分, 分开, 划分
merge: merge, combine, join together, borrow | 合并, 归并
full: full, fill up, overflow, no space | 溢出, 已满
empty: empty, null, blank, none | 空值
first: first, earliest, initially | 第一个, 最先, 首先
last: last, latest, most recent, final version | 最后, 最近, 最新
free: free, no cost, unused, available | 空闲, 免费, 可用
rest: rest, left over, unused, remaining | 剩余, 没用完, 剩下, 用不完
order: order, sequence, sorted | 顺序, 次序, 先后
same: same, identical, equal | 相同, 一样, 同样
together: together, simultaneously, at the same time, concurrent, concurrently, parallel | 同时,
  一起, 并发, 并行
again: second time, again, twice | 再次, 第二次, 两次
many: several, multiple, more than one, many times | 多个, 多次, 几次
responsible: responsible, in charge, who grade, who mark, who correct, correct, look after |
  负责, 批改, 谁改, 改卷
meaning: mean, stand for, abbreviation, short for | 意思, 缩写, 全称, 代表
value: value, reading, number | 数值, 取值, 读数
typical: typical, usual, normally, generally, in general | 一般, 通常, 典型
compensation: make up for, allowance, consideration, special rule, special treatment,
  exception | 照顾, 例外, 特殊, 优待, 通融
count: count, number of, how many | 数量, 个数, 多少个, 几个, 次数
best: best, drop the worst, lowest, worst | 最好, 最差, 去掉最低
attempt: attempt, try, chance, opportunity | 机会, 尝试
explainb: explain, explanation, oral, questioning | 解释, 说明, 讲解, 口头, 提问
understand: understand, know, familiar, basics | 了解, 掌握, 熟悉
beginner: beginner, never, no experience, catch up, tutorial, refresher, remedial | 补习,
  零基础, 入门, 基础差
questionb: question, ask, query | 提问
reply: reply, respond, response time, answer within | 回复, 答复, 回信
notice: notice, announcement, news, message | 通知, 公告, 消息
visit: visit, trip, excursion, tour | 参观, 外出
borrow: borrow, lend, loan, rent | 借用
print: print, printer, paper copy, hard copy | 打印, 纸质, 纸版
electronic: electronic, digital copy, tablet, laptop | 电子版, 电子卡, 平板, 笔记本电脑
openbook: open book, closed book, own note, permitted material | 开卷, 闭卷, 纸质材料
duration: last, duration, how long, minutes long | 时长, 持续, 多长时间, 分钟
early: early, earlier, before the start | 提前, 提早
entry: enter, entry, admission, arrive, late arrival | 入场, 进场, 进入, 迟到
disqualify: disqualify, exclude, not admitted, barred, eligible, eligibility | 资格, 不得参加,
  不让参加, 不能参加
reuse: reuse, use again, repeat the course, last year's code | 重修, 重用, 沿用, 免修
interview: interview, oral exam, oral | 面试, 口试
commentb: comment, documentation, readme | 注释, 文档
style: style, formatting, lint, clang format | 代码风格, 风格, 规范
archive: archive, zip, tar, tarball, compressed | 压缩包, 打包, 压缩
branch: main branch, tag, last commit, push | 推送, 分支
unitsb: unit, units | 单位
draw: draw, plot, diagram, figure, curve, chart | 画图, 绘制, 曲线, 作图
significant: significant digits, decimal, digit, rounding, round | 有效数字, 小数, 取整, 四舍五入
uncertainty: uncertainty | 不确定度
weekend: weekend, saturday, sunday | 周末, 周六, 周日
morning: morning, a.m. | 上午, 早上
afternoon: afternoon, p.m., evening | 下午, 晚上
monday: monday, mon | 周一, 星期一, 礼拜一
tuesday: tuesday, tue | 周二, 星期二, 礼拜二
wednesday: wednesday, wed | 周三, 星期三, 礼拜三
thursday: thursday, thu | 周四, 星期四, 礼拜四
friday: friday, fri | 周五, 星期五, 礼拜五
saturday: saturday, sat | 周六, 星期六, 礼拜六
sunday: sunday, sun | 周日, 周天, 星期日, 星期天
half: half, one half, 50% | 一半, 减半
double: double, twice | 两倍, 加倍, 翻倍
enough: enough, sufficient, suffice | 足够
increase: increase, grow, growth, rise, higher | 增加, 增大, 增长, 升高, 变大
decrease: decrease, shrink, reduce, lower, halve | 减小, 降低, 下降, 变小, 缩小
compareb: better than, worse than, instead of | 而不是, 不如, 代替
skip: skip, ignore, omit, leave out | 跳过, 忽略, 略过, 省略
detect: detect, detection, notice, discover, find out | 检测, 发现, 检查
solve: solve, solution to, fix, resolve, remedy | 解决, 处理, 修复
happen: happen, consequence, result in, lead to | 后果, 结果, 导致, 会怎样
notify: notify, inform, tell | 告知, 告诉, 报告
divideb: per, each |
replaceable: replace, substitute, alternative | 替代, 更换, 代替
stopwait: stop and wait | 停等
unique: unique, uniqueness, duplicate | 唯一, 重复
rangescan: range, range scan, range query | 范围, 范围查询
nested: nested, nested loop | 嵌套
prefixb: prefix, leftmost | 前缀, 最左
estimateb: selectivity, row count, number of rows | 行数, 选择率
readingb: reading list, read before | 阅读, 预习
"""
