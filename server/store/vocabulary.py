"""Words that the full-text search treats in a special way, as data.

`STOP_WORDS` and `STOP_PHRASES` say nothing about what is asked, so a question is searched
without them. `NUMBERED` are things that carry a number: "Lab 4", "实验四" and "第四次实验" are one.
"""

from __future__ import annotations

from collections.abc import Mapping

NUMBERED: Mapping[str, tuple[str, ...]] = {
    "lab": ("laboratory", "labs", "lab", "实验课", "实验"),
    "lecture": ("lectures", "lecture", "讲义", "讲"),
    "week": ("weeks", "week", "周"),
    "homework": ("homeworks", "homework", "assignments", "assignment", "作业"),
    "chapter": ("chapters", "chapter", "章"),
    "section": ("sections", "section", "节"),
    "project": ("projects", "project", "项目"),
    "quiz": ("quizzes", "quiz", "小测", "测验"),
    "question": ("questions", "question", "exercise", "练习", "题"),
}

NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)
ORDINAL_WORDS = (
    *("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
    *("ninth", "tenth", "eleventh", "twelfth"),
)

STOP_WORDS = frozenset(
    word
    for line in (
        "a about according again all also am an and any anybody anyone anything are as at be",
        "been being but by can cannot choose could course date day did difference do does doing",
        "done each else ever every everybody everyone exactly few find for from gave get gets",
        "give gives go goes going got had happen happens has have having he her here",
        "hers him his how i if in into is it its just kind know let like look made make makes",
        "many may me mean means might mine more most much must my need needed needs no not of",
        "off often ok on one only or other our ours out please possible really s same say says",
        "shall she should show so some somebody someone something such sure t take takes tell",
        "than thank thanks that the their them then there these they thing things this those to",
        "too towards up us use used using very want was we were what when where whether which",
        "while who whom whose why will with within without would yes you your yours",
        # What is left of "doesn't" and the like, also as typed in haste.
        "ain aren couldn didn doesn don hadn hasn haven isn ll mustn re shouldn ve wasn weren won",
        "wouldn arent cant couldnt didnt doesnt dont hadnt hasnt havent im isnt ive shouldnt thats",
        "wasnt whats wont wouldnt",
    )
    for word in line.split()
)

STOP_PHRASES = (
    *(
        "什么时候",
        "什么时间",
        "时候",
        "为什么",
        "什么",
        "怎么样",
        "怎么办",
        "怎么",
        "怎样",
        "如何",
        "多少",
    ),
    *("一共", "总共", "到底", "究竟", "为啥", "啥", "咋", "多久", "多长时间", "多长"),
    *("几点", "几号", "几个", "几次", "几分", "哪一天", "哪些", "哪个", "哪天", "哪几", "哪", "谁"),
    *("是不是", "有没有", "能不能", "可不可以", "会不会", "要不要", "需不需要", "允不允许"),
    *(
        "可以",
        "需要",
        "应该",
        "应当",
        "必须",
        "能够",
        "请问",
        "请",
        "是否",
        "不能",
        "不可以",
        "没有",
        "一下",
        "告诉",
        "知道",
    ),
    *("我们", "你们", "他们", "这门课", "本课程", "课程", "这个", "那个", "以及", "或者", "并且"),
    *(
        "还是",
        "如果",
        "的话",
        "因为",
        "所以",
        "但是",
        "还有",
        "其中",
        "关于",
        "根据",
        "按照",
        "意思",
        "区别",
        "不同",
        "作用",
        "有用",
    ),
    *("的", "了", "吗", "呢", "吧", "啊", "呀", "是", "我", "你", "您", "他", "她", "它", "们"),
    *("这", "那", "么", "之", "就", "也", "都", "很", "把", "被", "给", "呗", "嘛"),
)

SOFT_CHARACTERS = frozenset("在有要能会可和与或对到从向上下多少为得地着过个次种来去做用让才再最每")
"""Characters that are mostly grammar, but also parts of words ("要求"): they count for less."""
