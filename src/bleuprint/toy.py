"""The toy data set: sentence pairs of a small English-German grammar, drawn with a seed.

What makes it a test of a translation model is word order over a distance. German puts the finite verb second in a main
clause and last in a subordinate one, an infinitive and a separable particle last, and the subject after the verb where
another constituent comes first; articles and adjectives agree in gender, number and case. Every noun phrase draws from
the same nouns and adjectives, so only positions tell which belong together. One English sentence has one German one.
"""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from bleuprint.corpus import Written, write_manifest
from bleuprint.datasets import GeneratedDataset
from bleuprint.files import atomic_directory

Article = Literal["the", "a"]  # a: two, zwei in the plural
Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat"]
Order = Literal["second", "inverted", "final"]
Item = TypeVar("Item")
Words = tuple[list[str], list[str]]  # English, German

MIN_WORDS, MAX_WORDS = 4, 20  # of a sentence, on either side
DRAWS_PER_PAIR = 100  # so many in vain and the grammar is taken to have no more sentences

# How often an option is taken where the grammar offers it.
P_ADJECTIVE = 0.5
P_COMPOUND = 0.4
P_PLURAL = 0.3
P_RELATIVE = 0.25
P_MODAL = 0.35
P_PLACE = 0.3


# --- lexicon ----------------------------------------------------------------------------------------------------------


class Word(NamedTuple):
    english: str
    german: str


class Noun(NamedTuple):
    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    heads_compounds: bool


class Verb(NamedTuple):
    """`object` is the case that the verb governs, None of an intransitive one; German plural = infinitive."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    particle: str
    object: Case | None


class Modal(NamedTuple):
    english: str
    english_plural: str
    german: str
    german_plural: str


NOUNS = (
    Noun("man", "men", "Mann", "Männer", "m", False),
    Noun("friend", "friends", "Freund", "Freunde", "m", False),
    Noun("dog", "dogs", "Hund", "Hunde", "m", True),
    Noun("woman", "women", "Frau", "Frauen", "f", False),
    Noun("aunt", "aunts", "Tante", "Tanten", "f", False),
    Noun("cat", "cats", "Katze", "Katzen", "f", True),
    Noun("child", "children", "Kind", "Kinder", "n", False),
    Noun("horse", "horses", "Pferd", "Pferde", "n", True),
)
COMPOUND_MODIFIERS = (Word("village", "Dorf"), Word("circus", "Zirkus"))
PLACES = (
    Noun("garden", "gardens", "Garten", "Gärten", "m", False),
    Noun("kitchen", "kitchens", "Küche", "Küchen", "f", False),
    Noun("house", "houses", "Haus", "Häuser", "n", False),
)
ADJECTIVES = (
    Word("old", "alt"),
    Word("young", "jung"),
    Word("small", "klein"),
    Word("big", "groß"),
    Word("clever", "klug"),
)
ARTICLES: tuple[Article, ...] = ("the", "a")
VERBS = (
    Verb("sees", "see", "sieht", "sehen", "", "acc"),
    Verb("loves", "love", "liebt", "lieben", "", "acc"),
    Verb("helps", "help", "hilft", "helfen", "", "dat"),
    Verb("follows", "follow", "folgt", "folgen", "", "dat"),
    Verb("calls", "call", "ruft", "rufen", "an", "acc"),
    Verb("fetches", "fetch", "holt", "holen", "ab", "acc"),
    Verb("sleeps", "sleep", "schläft", "schlafen", "", None),
    Verb("waits", "wait", "wartet", "warten", "", None),
)
REPORTING_VERBS = (Verb("says", "say", "sagt", "sagen", "", None), Verb("knows", "know", "weiß", "wissen", "", None))
MODALS = (
    Modal("can", "can", "kann", "können"),
    Modal("must", "must", "muss", "müssen"),
    Modal("wants to", "want to", "will", "wollen"),
)
CONJUNCTIONS = (Word("when", "wenn"), Word("because", "weil"))
ADVERBS = (Word("today", "heute"), Word("now", "jetzt"))

# Article and adjective ending for masculine, feminine, neuter and plural.
DECLENSION: dict[tuple[str, Case], str] = {
    ("the", "nom"): "der+e    die+e    das+e    die+en",
    ("the", "acc"): "den+en   die+e    das+e    die+en",
    ("the", "dat"): "dem+en   der+en   dem+en   den+en",
    ("a", "nom"): "  ein+er   eine+e   ein+es   zwei+e",
    ("a", "acc"): "  einen+en eine+e   ein+es   zwei+e",
    ("a", "dat"): "  einem+en einer+en einem+en zwei+en",
}


# --- trees ------------------------------------------------------------------------------------------------------------


class NounPhrase(NamedTuple):
    """`relative` is the predicate of a relative clause, whose subject is the head: the man who *sees the dog*."""

    article: Article
    adjective: Word | None
    modifier: Word | None
    noun: Noun
    plural: bool
    relative: "Predicate | None"


class Predicate(NamedTuple):
    modal: Modal | None
    verb: Verb
    object: NounPhrase | None
    place: NounPhrase | None


class Clause(NamedTuple):
    subject: NounPhrase
    predicate: Predicate


# --- English ----------------------------------------------------------------------------------------------------------


def english_noun_phrase(phrase: NounPhrase) -> list[str]:
    """Return e.g. an old village dog who sees the cat."""
    described = [phrase.adjective.english] if phrase.adjective else []
    described += [phrase.modifier.english] if phrase.modifier else []
    described += [phrase.noun.english_plural if phrase.plural else phrase.noun.english]
    article: str = phrase.article
    if article == "a":
        article = "two" if phrase.plural else "an" if described[0][0] in "aeiou" else "a"
    relative = ["who", *english_predicate(phrase.relative, phrase.plural)] if phrase.relative else []
    return [article, *described, *relative]


def english_predicate(predicate: Predicate, plural: bool) -> list[str]:
    """Return e.g. can see the dog in the garden; `plural` is the subject's number."""
    verb = english_forms(predicate.verb, plural or predicate.modal is not None)
    modal = english_forms(predicate.modal, plural) if predicate.modal else []
    object_ = english_noun_phrase(predicate.object) if predicate.object else []
    place = ["in", *english_noun_phrase(predicate.place)] if predicate.place else []
    return [*modal, *verb, *object_, *place]


def english_forms(verb: Verb | Modal, plural: bool) -> list[str]:
    """Return the words of the third person singular or plural."""
    return (verb.english_plural if plural else verb.english).split()


def english_clause(clause: Clause) -> list[str]:
    """Return subject, verb, object: the order is the same in every English clause."""
    return english_noun_phrase(clause.subject) + english_predicate(clause.predicate, clause.subject.plural)


# --- German -----------------------------------------------------------------------------------------------------------


def german_noun_phrase(phrase: NounPhrase, case: Case) -> list[str]:
    """Return e.g. einen alten Dorfhund; a relative clause stands between commas, its verb last."""
    article, ending = decline(phrase.article, case, phrase.noun.gender, phrase.plural)
    adjective = [phrase.adjective.german + ending] if phrase.adjective else []
    noun = phrase.noun.german_plural if phrase.plural else phrase.noun.german
    compound = phrase.modifier.german + noun.lower() if phrase.modifier else noun
    if phrase.relative is None:
        return [article, *adjective, compound]
    pronoun, _ = decline("the", "nom", phrase.noun.gender, phrase.plural)
    relative = german_predicate(phrase.relative, phrase.plural, "final", [pronoun])
    return [article, *adjective, compound, ",", *relative, ","]


def decline(article: Article, case: Case, gender: Gender, plural: bool) -> tuple[str, str]:
    """Return article and adjective ending."""
    column = 3 if plural else "mfn".index(gender)
    form, ending = DECLENSION[article, case].split()[column].split("+")
    return form, ending


def german_predicate(predicate: Predicate, plural: bool, order: Order, subject: list[str]) -> list[str]:
    """Return the clause of this subject: finite verb second, first (something else precedes the subject) or last."""
    modal, verb = predicate.modal, predicate.verb
    finite = german_form(modal or verb, plural)
    last = verb.particle + verb.german_plural if modal else verb.particle
    middle = german_noun_phrase(predicate.object, verb.object) if predicate.object and verb.object else []
    middle += ["in", *german_noun_phrase(predicate.place, "dat")] if predicate.place else []
    if order == "final":
        return [*subject, *middle, *([last, finite] if modal else [last + finite])]
    front = [*subject, finite] if order == "second" else [finite, *subject]
    return [*front, *middle, *([last] if last else [])]


def german_form(verb: Verb | Modal, plural: bool) -> str:
    """Return the third person, without its particle."""
    return verb.german_plural if plural else verb.german


def german_clause(clause: Clause, order: Order) -> list[str]:
    """Return the clause with its finite verb where `order` says."""
    subject = german_noun_phrase(clause.subject, "nom")
    return german_predicate(clause.predicate, clause.subject.plural, order, subject)


# --- drawing ----------------------------------------------------------------------------------------------------------


def pick(rng: random.Random, options: Sequence[Item]) -> Item:
    """Return one of the options, each as likely as the other."""
    # Of all of Random's methods, only random() is promised to give the same numbers in every version of Python.
    return options[int(rng.random() * len(options))]


def chance(rng: random.Random, probability: float) -> bool:
    """Return True with this probability."""
    return rng.random() < probability


def draw_noun_phrase(rng: random.Random, nouns: Sequence[Noun], p_plural: float, p_relative: float) -> NounPhrase:
    """Draw a noun phrase; a relative clause holds no other, so that both languages attach each word alike."""
    noun = pick(rng, nouns)
    return NounPhrase(
        article=pick(rng, ARTICLES),
        adjective=pick(rng, ADJECTIVES) if chance(rng, P_ADJECTIVE) else None,
        modifier=pick(rng, COMPOUND_MODIFIERS) if noun.heads_compounds and chance(rng, P_COMPOUND) else None,
        noun=noun,
        plural=chance(rng, p_plural),
        relative=draw_predicate(rng, 0.0, 0.0) if chance(rng, p_relative) else None,
    )


def draw_predicate(rng: random.Random, p_modal: float, p_place: float) -> Predicate:
    """Draw a predicate; its dative phrases are singular, to spare every noun a third form."""
    verb = pick(rng, VERBS)
    return Predicate(
        modal=pick(rng, MODALS) if chance(rng, p_modal) else None,
        verb=verb,
        object=draw_noun_phrase(rng, NOUNS, P_PLURAL if verb.object == "acc" else 0.0, 0.0) if verb.object else None,
        place=draw_noun_phrase(rng, PLACES, 0.0, 0.0) if chance(rng, p_place) else None,
    )


def draw_subject(rng: random.Random) -> NounPhrase:
    """Draw a subject: the one noun phrase that may have a relative clause."""
    return draw_noun_phrase(rng, NOUNS, P_PLURAL, P_RELATIVE)


def draw_clause(rng: random.Random) -> Clause:
    """Draw a clause."""
    return Clause(draw_subject(rng), draw_predicate(rng, P_MODAL, P_PLACE))


# --- sentences: each function draws one and returns its English and its German words ----------------------------------


def plain(rng: random.Random) -> Words:
    """The man can see the dog. Der Mann kann den Hund sehen."""
    clause = draw_clause(rng)
    return english_clause(clause), german_clause(clause, "second")


def fronted_adverb(rng: random.Random) -> Words:
    """Today the man calls the dog. Heute ruft der Mann den Hund an."""
    adverb, clause = pick(rng, ADVERBS), draw_clause(rng)
    return [adverb.english, *english_clause(clause)], [adverb.german, *german_clause(clause, "inverted")]


def reported(rng: random.Random) -> Words:
    """The man says that the dog sleeps. Der Mann sagt, dass der Hund schläft."""
    speaker = Clause(draw_subject(rng), Predicate(None, pick(rng, REPORTING_VERBS), None, None))
    clause = draw_clause(rng)
    english = [*english_clause(speaker), "that", *english_clause(clause)]
    return english, [*german_clause(speaker, "second"), ",", "dass", *german_clause(clause, "final")]


def subordinate_first(rng: random.Random) -> Words:
    """When the dog sleeps, the man waits. Wenn der Hund schläft, wartet der Mann."""
    conjunction, first, second = pick(rng, CONJUNCTIONS), draw_clause(rng), draw_clause(rng)
    english = [conjunction.english, *english_clause(first), ",", *english_clause(second)]
    german = [conjunction.german, *german_clause(first, "final"), ",", *german_clause(second, "inverted")]
    return english, german


def subordinate_last(rng: random.Random) -> Words:
    """The man waits because the dog sleeps. Der Mann wartet, weil der Hund schläft."""
    first, conjunction, second = draw_clause(rng), pick(rng, CONJUNCTIONS), draw_clause(rng)
    english = [*english_clause(first), conjunction.english, *english_clause(second)]
    german = [*german_clause(first, "second"), ",", conjunction.german, *german_clause(second, "final")]
    return english, german


SENTENCES = (plain, fronted_adverb, reported, subordinate_first, subordinate_last)


# --- the stage --------------------------------------------------------------------------------------------------------


def generate(dataset: GeneratedDataset, out: Path) -> None:
    """Make data/raw/{dataset}: {split}.en, {split}.de and manifest.json; the same bytes for the same seed.

    No English sentence stands twice, within a split or across them. ValueError where the grammar has too few.
    """
    rng, seen = random.Random(dataset.seed), set[str]()
    written = {}
    with atomic_directory(out) as partial:
        for split in dataset.splits.all:
            pairs = draw_pairs(rng, dataset.pairs[split], seen)
            for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                name = f"{split}.{language}"
                written[name] = write_lines(partial / name, lines)
        write_manifest(partial, written)


def draw_pairs(rng: random.Random, count: int, seen: set[str]) -> list[tuple[str, str]]:
    """Return `count` new (English, German) sentences of MIN_WORDS to MAX_WORDS; adds the English ones to `seen`."""
    pairs: list[tuple[str, str]] = []
    for _ in range(count * DRAWS_PER_PAIR):
        english, german = (punctuate(words) for words in pick(rng, SENTENCES)(rng))
        fits = all(MIN_WORDS <= len(sentence.split()) <= MAX_WORDS for sentence in (english, german))
        if fits and english not in seen:
            seen.add(english)
            pairs.append((english, german))
        if len(pairs) == count:
            return pairs
    raise ValueError(f"the toy grammar gave {len(pairs)} new sentences in {count * DRAWS_PER_PAIR} draws, not {count}")


def punctuate(words: Sequence[str]) -> str:
    """Return the sentence: capital at its start, commas at their words, a full stop at its end, no comma before it."""
    text = " ".join([*words, "."]).replace(" ,", ",").replace(" .", ".").replace(",.", ".")
    return text[0].upper() + text[1:]


def write_lines(path: Path, lines: Sequence[str]) -> Written:
    """Write one sentence a line and return what the manifest says of the file."""
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(data)
    return Written(hashlib.sha256(data).hexdigest(), len(lines), 0)
