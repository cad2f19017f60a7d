"""The words of the built-in corpus. Every English word has exactly one French lemma, with one gender."""

from dataclasses import dataclass

from nmt.data.grammar.words import (
    Adjective,
    Adverb,
    Agreement,
    Determiner,
    Kind,
    Name,
    Noun,
    Preposition,
    Pronoun,
    Tense,
    Verb,
    adjective,
    names,
    nouns,
    verb,
)

PEOPLE = (Kind.PERSON,)
LIVING = (Kind.PERSON, Kind.ANIMAL)
GOODS = (Kind.THING, Kind.SURFACE)
OBJECTS = (*GOODS, Kind.FOOD)
SOLID = (*GOODS, Kind.PLACE, Kind.ANIMAL)
ALL = (*LIVING, *OBJECTS, Kind.PLACE)
DESTINATIONS = (Kind.PLACE, Kind.PLACE, Kind.CITY)

NOUNS = (
    *nouns(
        Kind.PERSON,
        masculine="man/men=homme, boy=garçon, child/children=enfant, king=roi, doctor=médecin, farmer=fermier, "
        "baker=boulanger, teacher=professeur, student=étudiant, neighbor=voisin, brother=frère, father=père, "
        "uncle=oncle, painter=peintre, hero=héros",
        feminine="woman/women=femme, girl=fille, queen=reine, nurse=infirmière, sister=sœur, mother=mère, "
        "aunt=tante, actress=actrice, singer=chanteuse, princess=princesse",
    ),
    *nouns(
        Kind.ANIMAL,
        masculine="dog=chien, cat=chat, horse=cheval, bird=oiseau, wolf/wolves=loup, rabbit=lapin, owl=hibou/hiboux, "
        "elephant=éléphant",
        feminine="cow=vache, mouse/mice=souris, bee=abeille, hen=poule, spider=araignée",
    ),
    *nouns(
        Kind.THING,
        masculine="book=livre, hat=chapeau, boat=bateau, umbrella=parapluie, painting=tableau, bag=sac, tree=arbre, "
        "newspaper=journal, tool=outil, knife/knives=couteau, coat=manteau",
        feminine="letter=lettre, car=voiture, flower=fleur, key=clé, door=porte, window=fenêtre, bottle=bouteille, "
        "box=boîte, shirt=chemise, clock=horloge",
    ),
    *nouns(Kind.SURFACE, masculine="bed=lit, bench=banc", feminine="table=table, chair=chaise, shelf/shelves=étagère"),
    *nouns(
        Kind.FOOD,
        masculine="cake=gâteau, egg=œuf, cheese=fromage",
        feminine="apple=pomme, orange=orange, tomato=tomate, potato=pomme de terre/pommes de terre",
    ),
    *nouns(
        Kind.PLACE,
        masculine="garden=jardin, village=village, market=marché, castle=château, hotel=hôtel, hospital=hôpital, "
        "park=parc, museum=musée, restaurant=restaurant, office=bureau",
        feminine="house=maison, school=école, church=église, forest=forêt, kitchen=cuisine, farm=ferme, "
        "train station=gare, library=bibliothèque",
    ),
)

NAMES = (
    *names(Kind.PERSON, masculine="Pierre Paul Luc Oscar Antoine", feminine="Marie Claire Alice Emma Anne"),
    *names(Kind.CITY, masculine="Paris Lyon London=Londres Athens=Athènes"),
)

ADJECTIVES = (
    adjective("small", "petit", ALL, before_noun=True),
    adjective("big", "grand", ALL, before_noun=True),
    adjective("old", "vieux/vieil vieille", (*LIVING, *GOODS, Kind.PLACE), before_noun=True),
    adjective("beautiful", "beau/bel belle", ALL, before_noun=True),
    adjective("new", "nouveau/nouvel nouvelle", (*GOODS, Kind.PLACE), before_noun=True, gradable=False),
    adjective("good", "bon bonne", ALL, before_noun=True),
    adjective("young", "jeune", LIVING, before_noun=True),
    adjective("bad", "mauvais", OBJECTS, before_noun=True),
    adjective("red", "rouge", OBJECTS, gradable=False),
    adjective("green", "vert", OBJECTS, gradable=False),
    adjective("yellow", "jaune", OBJECTS, gradable=False),
    adjective("black", "noir", SOLID, gradable=False),
    adjective("white", "blanc blanche", SOLID, gradable=False),
    adjective("gray", "gris", SOLID, gradable=False),
    adjective("blue", "bleu", GOODS, gradable=False),
    adjective("heavy", "lourd", OBJECTS),
    adjective("expensive", "cher chère", (*OBJECTS, Kind.PLACE)),
    adjective("clean", "propre", (*GOODS, Kind.PLACE)),
    adjective("strange", "étrange", ALL),
    adjective("famous", "célèbre", (Kind.PERSON, Kind.PLACE)),
    adjective("dangerous", "dangereux dangereuse", LIVING),
    adjective("happy", "heureux heureuse", LIVING),
    adjective("sad", "triste", LIVING),
    adjective("tired", "fatigué", LIVING),
    adjective("sick", "malade", LIVING),
    adjective("strong", "fort", LIVING),
    adjective("rich", "riche", PEOPLE),
    adjective("proud", "fier fière", PEOPLE),
    adjective("intelligent", "intelligent", LIVING),
    adjective("curious", "curieux curieuse", LIVING),
)

THE = Determiner("the", "the", "le", "la", "les", definite=True)

DETERMINERS = (
    Determiner("a", "", "un", "une", ""),
    Determiner("every", "", "chaque", "chaque", "", definite=True),
    Determiner("", "some", "", "", "quelques"),
    Determiner("", "several", "", "", "plusieurs"),
    Determiner("", "many", "", "", "beaucoup de"),
    Determiner("this", "these", "ce/cet", "cette", "ces", definite=True),
    Determiner("my", "my", "mon", "ma/mon", "mes", definite=True),
    Determiner("his", "his", "son", "sa/son", "ses", definite=True),
    Determiner("her", "her", "son", "sa/son", "ses", definite=True),
    Determiner("our", "our", "notre", "notre", "nos", definite=True),
    Determiner("their", "their", "leur", "leur", "leurs", definite=True),
)

NUMERALS = (
    ("two", "deux"),
    ("three", "trois"),
    ("four", "quatre"),
    ("five", "cinq"),
    ("six", "six"),
    ("seven", "sept"),
    ("eight", "huit"),
    ("nine", "neuf"),
    ("ten", "dix"),
)

SUBJECT_PRONOUNS = (
    Pronoun("he", "il", Agreement()),
    Pronoun("she", "elle", Agreement(feminine=True)),
    Pronoun("they", "ils", Agreement(plural=True)),
)

THEM = Pronoun("them", "les", Agreement(plural=True))

OBJECT_PRONOUNS = (
    Pronoun("him", "le", Agreement()),
    Pronoun("her", "la", Agreement(feminine=True)),
    THEM,
    Pronoun("me", "me", Agreement()),
    Pronoun("us", "nous", Agreement(plural=True)),
)

PREPOSITIONS = (
    Preposition("in", "dans", (Kind.PLACE,)),
    Preposition("in", "à", (Kind.CITY,)),
    Preposition("near", "près de", (Kind.PERSON, Kind.ANIMAL, Kind.THING, Kind.SURFACE, Kind.PLACE)),
    Preposition("behind", "derrière", (Kind.PERSON, Kind.ANIMAL, Kind.THING, Kind.PLACE)),
    Preposition("in front of", "devant", (Kind.PERSON, Kind.SURFACE, Kind.PLACE), head=1),
    Preposition("next to", "à côté de", (Kind.PERSON, Kind.ANIMAL, Kind.THING, Kind.SURFACE, Kind.PLACE)),
    Preposition("on", "sur", (Kind.SURFACE,)),
    Preposition("under", "sous", (Kind.SURFACE,)),
    Preposition("with", "avec", LIVING),
)
OF = Preposition("of", "de")
TO = Preposition("to", "à")

INTRANSITIVES = (
    verb("sleep", "slept", "dormir dort dorment dormira dormi", subjects=LIVING),
    verb("laugh", "laughed", "rire rit rient rira ri"),
    verb("sing", "sang", "chanter", subjects=LIVING),
    verb("dance", "danced", "danser"),
    verb("work", "worked", "travailler"),
    verb("run", "ran", "courir court courent courra couru", subjects=LIVING),
    verb("cry", "cried", "pleurer"),
    verb("swim", "swam", "nager", subjects=LIVING),
    verb("arrive", "arrived", "arriver", etre=True, subjects=LIVING),
    verb("leave", "left", "partir part partent partira parti", etre=True, subjects=LIVING),
    verb("fall", "fell", "tomber", etre=True, subjects=LIVING),
)

TRANSITIVES = (
    verb("see", "saw", "voir voit voient verra vu", subjects=LIVING, objects=ALL),
    verb("love", "loved", "aimer", subjects=LIVING, objects=LIVING),
    verb("look for", "looked", "chercher", subjects=LIVING, objects=(*LIVING, *OBJECTS)),
    verb("look at", "looked", "regarder", subjects=LIVING, objects=ALL),
    verb("find", "found", "trouver", subjects=LIVING, objects=(*LIVING, *OBJECTS)),
    verb("hear", "heard", "entendre entend entendent entendra entendu", subjects=LIVING, objects=LIVING),
    verb("wait for", "waited", "attendre attend attendent attendra attendu", objects=LIVING),
    verb("listen to", "listened", "écouter", objects=LIVING),
    verb("follow", "followed", "suivre suit suivent suivra suivi", subjects=LIVING, objects=LIVING),
    verb("help", "helped", "aider", objects=PEOPLE),
    verb("meet", "met", "rencontrer", objects=PEOPLE),
    verb("admire", "admired", "admirer", objects=ALL),
    verb("protect", "protected", "protéger protège protègent protégera protégé", objects=(Kind.PERSON, Kind.PLACE)),
    verb("buy", "bought", "acheter achète achètent achètera acheté", objects=OBJECTS),
    verb("sell", "sold", "vendre vend vendent vendra vendu", objects=OBJECTS),
    verb("eat", "ate", "manger", subjects=LIVING, objects=(Kind.FOOD,)),
    verb("lose", "lost", "perdre perd perdent perdra perdu", objects=(Kind.THING,)),
    verb("visit", "visited", "visiter", objects=(Kind.PLACE,)),
)

DATIVES = (
    verb("give", "gave", "donner", objects=OBJECTS, preposition=TO),
    verb("show", "showed", "montrer", objects=OBJECTS, preposition=TO),
    verb("send", "sent", "envoyer envoie envoient enverra envoyé", objects=OBJECTS, preposition=TO),
)

OBLIQUES = (
    verb("speak", "spoke", "parler", objects=LIVING, preposition=TO),
    verb("dream", "dreamed", "rêver", objects=ALL, preposition=OF),
    verb("go", "went", "aller va vont ira allé", etre=True, subjects=LIVING, objects=DESTINATIONS, preposition=TO),
    verb("return", "returned", "retourner", etre=True, subjects=LIVING, objects=DESTINATIONS, preposition=TO),
    verb(
        "come",
        "came",
        "venir vient viennent viendra venu",
        etre=True,
        subjects=LIVING,
        objects=DESTINATIONS,
        preposition=Preposition("from", "de"),
    ),
)

REPORTING = (
    verb("say", "said", "dire dit disent dira dit"),
    verb("think", "thought", "penser"),
    verb("believe", "believed", "croire croit croient croira cru"),
    verb("explain", "explained", "expliquer"),
)

MODALS = (
    verb("want to", "wanted", "vouloir veut veulent voudra voulu", subjects=LIVING),
    verb("can", "could", "pouvoir peut peuvent pourra pu", subjects=LIVING, copular=True),
    verb("must", "had", "devoir doit doivent devra dû", subjects=LIVING, copular=True),
)

BE = Verb(
    base="be",
    english={Tense.PRESENT: ("is", "are"), Tense.PAST: ("was", "were"), Tense.FUTURE: ("be", "be")},
    infinitive="être",
    french={Tense.PRESENT: ("est", "sont"), Tense.PAST: ("était", "étaient"), Tense.FUTURE: ("sera", "seront")},
    copular=True,
)

EXIST = Verb(
    base="be",
    english=BE.english,
    infinitive="avoir",
    french={Tense.PRESENT: ("a", "a"), Tense.PAST: ("avait", "avait"), Tense.FUTURE: ("aura", "aura")},
    copular=True,
)

NOT = Adverb("not", "pas", negative=True)
NEVER = Adverb("never", "jamais", negative=True)
FREQUENCY = (
    Adverb("often", "souvent"),
    Adverb("always", "toujours"),
    Adverb("sometimes", "parfois"),
    Adverb("rarely", "rarement"),
    Adverb("also", "aussi"),
)
MANNER = (Adverb("slowly", "lentement"), Adverb("quickly", "rapidement"), Adverb("quietly", "calmement"))
TIME = {
    Tense.PRESENT: (Adverb("today", "aujourd'hui"), Adverb("now", "maintenant")),
    Tense.PAST: (Adverb("yesterday", "hier"),),
    Tense.FUTURE: (Adverb("tomorrow", "demain"), Adverb("today", "aujourd'hui")),
}
VERY = Adverb("very", "très")
DEGREES = (VERY, Adverb("too", "trop"))


@dataclass(frozen=True)
class Lexicon:
    """The open classes of words; tests put smaller ones in their place."""

    nouns: tuple[Noun, ...] = NOUNS
    names: tuple[Name, ...] = NAMES
    adjectives: tuple[Adjective, ...] = ADJECTIVES
    determiners: tuple[Determiner, ...] = DETERMINERS
    intransitives: tuple[Verb, ...] = INTRANSITIVES
    transitives: tuple[Verb, ...] = TRANSITIVES
    datives: tuple[Verb, ...] = DATIVES
    obliques: tuple[Verb, ...] = OBLIQUES
    reporting: tuple[Verb, ...] = REPORTING
    modals: tuple[Verb, ...] = MODALS
    prepositions: tuple[Preposition, ...] = PREPOSITIONS
