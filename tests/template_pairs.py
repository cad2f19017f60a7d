"""English sentences from a template and their Chinese translations, which have no spaces: a corpus for whole runs."""

import random
from pathlib import Path

SUBJECTS = {"cat": "猫", "teacher": "老师", "child": "孩子", "doctor": "医生", "driver": "司机", "student": "学生"}
VERBS = {"buys": "买", "sees": "看见", "sells": "卖掉", "finds": "找到", "paints": "画", "loses": "弄丢"}
ADJECTIVES = {"old": "旧", "new": "新", "red": "红色", "small": "小", "heavy": "重", "beautiful": "漂亮"}
OBJECTS = {"bicycle": "自行车", "house": "房子", "book": "书", "clock": "钟", "ship": "船", "lamp": "灯"}
ENDS = {
    "": "",
    "in {} days": "{}天后",
    "in the morning": "早上",
    "near the river": "在河边",
    "every week": "每周",
    "with {} friends": "和{}个朋友一起",
}


def template_pairs(number: int, seed: int = 1) -> list[tuple[str, str]]:
    """Return distinct pairs such as ("The cat buys the old bicycle in 3 days.", "猫3天后买旧自行车。")."""
    generator = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < number:
        subject, verb, adjective, thing, end = (
            generator.choice(list(words)) for words in (SUBJECTS, VERBS, ADJECTIVES, OBJECTS, ENDS)
        )
        days = generator.randint(2, 9)
        english = f"The {subject} {verb} the {adjective} {thing} {end.format(days)}".rstrip() + "."
        chinese = SUBJECTS[subject] + ENDS[end].format(days) + VERBS[verb] + ADJECTIVES[adjective] + OBJECTS[thing]
        pairs[english] = f"{chinese}。"
    return list(pairs.items())


def write_template_corpus(folder: Path, train: int = 3000, validation: int = 200, test: int = 200) -> list[str]:
    """Write train, validation and test files, which share no sentence; return the overrides that read them."""
    pairs = template_pairs(train + validation + test)
    overrides = ["data=text", "data.source_language=en", "data.target_language=zh"]
    for split, size in (("train", train), ("validation", validation), ("test", test)):
        part, pairs = pairs[:size], pairs[size:]
        for side, language in enumerate(("en", "zh")):
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
            overrides.append(f"data.{split}.{('source', 'target')[side]}={path}")
    return overrides
