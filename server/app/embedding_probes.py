"""Questions with their answers, by which is tried whether an embedding model knows a language."""

from __future__ import annotations

from collections.abc import Mapping

PROBES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "en": (
        ("When is the report due?", "Hand it in by Friday at noon."),
        ("Who teaches this?", "The lecturer is Professor Miller."),
        ("How do plants get energy?", "Leaves turn sunlight into sugar."),
        ("What does a compiler do?", "It translates source code into machine code."),
        ("May I use a calculator?", "Simple pocket calculators are permitted in the exam."),
        ("Why is the sea salty?", "Rivers wash minerals out of rocks into it."),
        ("How tall is the tower?", "It rises 324 metres above the ground."),
        ("Where do I find the room?", "Go up to the third floor and turn left."),
        ("What is inflation?", "Prices rise, and money buys less than before."),
        ("How can I reach you?", "Write an email or call the office."),
    ),
    "zh": (
        ("报告什么时候交？", "请在周五中午以前提交。"),
        ("这门课谁来上？", "主讲是米勒教授。"),
        ("植物怎样得到能量？", "叶子把阳光变成糖。"),
        ("编译器做什么？", "它把源代码翻译成机器码。"),
        ("考试能用计算器吗？", "允许携带普通的计算器。"),
        ("海水为什么是咸的？", "河流把岩石里的矿物质冲进去。"),
        ("这座塔有多高？", "它高出地面三百二十四米。"),
        ("教室怎么走？", "上到三楼往左拐。"),
        ("什么是通货膨胀？", "物价上涨，钱能买到的东西变少。"),
        ("怎么联系你们？", "写邮件或者打办公室电话。"),
    ),
}
"""A question and its answer, of which the other answers of the language are none."""
