"""A run's model card in the form of the Hugging Face Hub: metadata in YAML, then what the model is, for people.

Everything in it comes from results/{run}.json, its provenance, params.yaml, and facts on data sets (reference/).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import model_validator

from bleuprint.graph import Run
from bleuprint.metrics import METRICS
from bleuprint.params import Corpus, Experiment
from bleuprint.reporting.licences import Licence
from bleuprint.reporting.markdown import code, escape, markdown_table
from bleuprint.reporting.run_facts import RunProvenance, as_yaml, machine_values, training_values
from bleuprint.reporting.sections import with_interval
from bleuprint.scoring import Result
from bleuprint.strict import Name, Strict, read_yaml, validate
from bleuprint.verdicts.published import MEASURES

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARDS_FILE = Path(__file__).parents[1] / "reference" / "cards.yaml"
HUB_METRICS = {"BLEU": "bleu", "chrF": "chrf"}  # the Hub's names of sacreBLEU's metrics, by their unit here
USELESS_BLEU = 10.0  # below it a translation is hardly ever one
PAPER = """@inproceedings{vaswani2017attention,
  title = "Attention Is All You Need",
  author = "Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and Gomez, Aidan N.
    and Kaiser, {\\L}ukasz and Polosukhin, Illia",
  booktitle = "Advances in Neural Information Processing Systems 30",
  year = "2017",
}"""


class CardFacts(Strict):
    """What a card says of a data set: its name on the Hub, the licence of weights trained on it, what it is, BibTeX."""

    hub: str | None
    license: Name
    license_name: Name | None
    domain: str
    citation: str | None

    @model_validator(mode="after")
    def check_license(self) -> "CardFacts":
        if (self.license == "other") != (self.license_name is not None):
            raise ValueError(f"license is {self.license} and license_name {self.license_name}: other alone has a name")
        return self


class CardsOfDatasets(Strict):
    cards: dict[str, CardFacts]


# Of a data set that a user brought nothing is known here.
UNKNOWN = CardFacts(
    hub=None, license="other", license_name="unknown", domain="sentences of its own data set", citation=None
)
UNKNOWN_TERMS = "Whoever passes this model on has to say on what terms its data may be used"


class Subject(NamedTuple):
    """All that a card is made from; `licence` is None where nothing is known of the data set."""

    run: Run
    result: Result
    provenance: RunProvenance
    recipe: Experiment
    corpus: Corpus
    facts: CardFacts
    licence: Licence | None

    @property
    def title(self) -> str:
        """Name of the data set."""
        return self.licence.title if self.licence else self.run.dataset


def load_facts(dataset: str, path: Path = CARDS_FILE) -> CardFacts:
    """Return what cards say of a data set, UNKNOWN of one that reference/cards.yaml does not have."""
    cards = validate(CardsOfDatasets, read_yaml(path), path).cards
    return {dataset: UNKNOWN, **cards}[dataset]


def render_card(subject: Subject) -> str:
    """Return a card: metadata between two lines of ---, then Markdown."""
    sections = {
        f"# bleuprint {subject.result.run}": opening(subject),
        "## Intended use": intended_use(subject),
        "## Training data": training_data(subject),
        "## Training procedure": procedure(subject),
        "## Evaluation": evaluation(subject),
        "## Limitations": "\n".join(f"- {one}" for one in limitations(subject)),
        "## How to get started": get_started(subject),
        "## Citation": "\n\n".join(f"```bibtex\n{one}\n```" for one in (PAPER, subject.facts.citation) if one),
    }
    body = "\n\n".join(f"{title}\n\n{text}" for title, text in sections.items())
    return f"---\n{metadata(subject)}\n---\n\n{body}\n"


# --- metadata ---------------------------------------------------------------------------------------------------------


def metadata(subject: Subject) -> str:
    """Return the YAML that the Hub reads, by its own library."""
    from huggingface_hub import ModelCardData

    facts, corpus = subject.facts, subject.corpus
    found = eval_results(subject)
    optional: dict[str, Any] = {
        "license_name": facts.license_name,
        "license_link": subject.licence.url if subject.licence and facts.license == "other" else None,
        "datasets": [facts.hub] if facts.hub else None,
    }
    return ModelCardData(
        language=[corpus.source, corpus.target],
        license=facts.license,
        pipeline_tag="translation",
        tags=["transformer", "bleuprint"],
        metrics=sorted({result.metric_type for result in found}),
        model_name=f"bleuprint-{subject.result.run}",
        eval_results=found,
        **{key: value for key, value in optional.items() if value is not None},
    ).to_yaml()


def eval_results(subject: Subject) -> list["EvalResult"]:
    """Return every score with its signature and interval; legacy_score, which is no metric of the Hub's, is not one."""
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="translation",
            dataset_type=subject.facts.hub or subject.run.dataset,
            dataset_name=subject.title,
            dataset_config=f"{subject.corpus.source}-{subject.corpus.target}",
            dataset_split=test,
            metric_type=HUB_METRICS[METRICS[name].unit],
            metric_name=f"{METRICS[name].unit} ({name})",
            metric_value=round(score.score, 2),
            metric_args={"signature": score.signature, "interval": [round(score.low, 2), round(score.high, 2)]},
        )
        for test, scores in subject.result.test_sets.items()
        for name, score in scores.items()
    ]


# --- sections ---------------------------------------------------------------------------------------------------------


def opening(subject: Subject) -> str:
    """Return what the model is, in two sentences."""
    result, corpus = subject.result, subject.corpus
    reads = f"translates {corpus.source} to {corpus.target}"
    return (
        f"A Transformer of {result.parameters:,} parameters that {reads}, trained from nothing on "
        f"{subject.facts.domain}. It is the run {code(result.run)}, experiment {code(result.experiment)} with seed "
        f"{result.seed}, of bleuprint, which reruns a Transformer README's results table and says what of it holds."
    )


def intended_use(subject: Subject) -> str:
    """Return what the model is for, and what it is not for."""
    return (
        "Research and teaching: to check a published number, to compare recipes, to look into a small model. It is not "
        "made to translate texts that people rely on, nor any that are unlike its training data "
        f"({subject.facts.domain})."
    )


def training_data(subject: Subject) -> str:
    """Return which data the model saw, and on what terms."""
    corpus, licence = subject.corpus, subject.licence
    terms = terms_of(licence) if licence else UNKNOWN_TERMS
    title = f"[{escape(licence.title)}]({licence.url})" if licence else code(subject.run.dataset)
    learned = as_yaml(corpus.tokenizer.model_dump(mode="json"))
    return (
        f"{title}, {subject.facts.domain}, and nothing else.\n\n"
        f"**Terms of the data**: {escape(terms)}. bleuprint's code is under the Apache License 2.0, which says nothing "
        "about these data, nor about weights that were made from them.\n\n"
        f"Corpus {code(subject.run.corpus)}; its tokenizer, learnt from the training pairs:\n\n```yaml\n{learned}```"
    )


def terms_of(licence: Licence) -> str:
    """Return on what terms data may be used, without what is said of sentences that are shown: a card has none."""
    return licence.terms.partition(". ")[0].partition("; downloaded")[0].rstrip(".")


def procedure(subject: Subject) -> str:
    """Return how it was trained, with every parameter."""
    speed = subject.provenance.training
    values = {**training_values(subject.result, speed), **machine_values(subject.provenance)}
    recipe = subject.recipe.model_dump(mode="json", exclude={"corpus"})
    return (
        f"{markdown_table(('', ''), [(name, escape(value)) for name, value in values.items()])}\n\n"
        f"All parameters, as in bleuprint's params.yaml:\n\n```yaml\n{as_yaml(recipe)}```"
    )


def evaluation(subject: Subject) -> str:
    """Return every score with its interval and signature, and what the metrics are."""
    result = subject.result
    header = ("Test set", "Metric", "Score [95 % interval]", "Signature")
    rows = [
        (code(test), code(name), with_interval(score), code(score.signature))
        for test, scores in result.test_sets.items()
        for name, score in scores.items()
    ]
    used = dict.fromkeys(name for scores in result.test_sets.values() for name in scores)
    legacy = result.legacy_score
    meant: dict[str, str] = {name: METRICS[name].definition for name in used}
    meant["legacy_score"] = MEASURES["legacy_score"].definition
    return "\n\n".join(
        (
            markdown_table(header, rows),
            f"{code('legacy_score')} on {code(legacy.split)}: {legacy.score:.2f}. It is not BLEU.",
            "\n".join(f"- {code(name)}: {escape(text)}" for name, text in meant.items()),
        )
    )


def limitations(subject: Subject) -> list[str]:
    """Return what a user of the model has to know, one sentence each."""
    result, corpus, recipe = subject.result, subject.corpus, subject.recipe
    best = max(scores["bleu_lc_tok"].score for scores in result.test_sets.values())
    seed = f"It is one seed ({result.seed}): another gives other scores, and by how much was not measured here."
    ended = {
        "diverged": "Its training diverged: the weights are those of a loss that is not finite, and mean nothing.",
        "max_steps": f"Its training ended after {result.steps:,} updates by its budget, not because it learnt no more.",
        "patience": "",
    }
    unknown = "Words that are not in its vocabulary become an unknown one." if corpus.tokenizer.kind != "bpe" else ""
    case = "" if corpus.cased else "It writes lower-case alone; capitals of its input are lost."
    useless = f"Its BLEU is at most {best:.1f}: it does not translate." if best < USELESS_BLEU else ""
    return [
        text
        for text in (
            useless,
            ended[result.stopped],
            seed,
            f"It has read {subject.facts.domain}, and no other kind of text.",
            case,
            unknown,
            f"It takes sentences, not documents, of at most {recipe.model.max_positions} tokens.",
            "Whatever its data say wrongly or unfairly about people, it may say too: nobody has looked into that.",
        )
        if text
    ]


def get_started(subject: Subject) -> str:
    """Return the commands that make the model again and that use it."""
    run, commit = subject.result.run, code(subject.provenance.git.commit or "unknown")
    engine = f"\npython -m bleuprint export {run} --to ctranslate2" if subject.run.model == "transformer" else ""
    return (
        f"In a clone of bleuprint, after `make venv` (the scores are of commit {commit}):\n\n"
        f"```sh\ndvc repro score@{run}  # data, training, translations, scores; with a DVC remote, --pull fetches them"
        f"{engine}\npython -m bleuprint translate {run} text.{subject.corpus.source}  # one sentence a line\n```\n\n"
        f"The weights are {code(f'runs/{run}/average/weights.safetensors')}, "
        f"the tokenizer is {code(f'data/corpora/{subject.run.corpus}/tokenizer.json')}."
    )
