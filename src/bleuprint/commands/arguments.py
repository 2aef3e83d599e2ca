"""What the commands take, as typer wants it said."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bleuprint.commands import completion

DatasetName = Annotated[
    str,
    typer.Argument(metavar="DATASET", help="A key of `datasets` in params.yaml.", autocompletion=completion.datasets),
]
CorpusName = Annotated[
    str, typer.Argument(metavar="CORPUS", help="A key of `corpora` in params.yaml.", autocompletion=completion.corpora)
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="EXPERIMENT-SEED; EXPERIMENT is a key of `experiments`.", autocompletion=completion.runs
    ),
]
RunNames = Annotated[
    list[str],
    typer.Argument(metavar="RUN RUN ...", help="Two runs or more, the baseline first.", autocompletion=completion.runs),
]
SentenceCount = Annotated[
    int, typer.Option("--sentences", min=0, help="How many sentences that gain, and that lose, to show.")
]
TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="A file of workflow/tables/, without .yaml.", autocompletion=completion.tables
    ),
]
OptionalTable = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="A file of workflow/tables/, without .yaml; else the active one.",
        autocompletion=completion.tables,
    ),
]
ClaimName = Annotated[
    str, typer.Argument(metavar="CLAIM", help="The id of a claim, or a number of its row, such as 26.4.")
]
CardFile = Annotated[Path | None, typer.Option("--out", help="The file to write; else it goes to stdout.")]
Engine = Annotated[Literal["ctranslate2"], typer.Option("--to", help="The engine that will read the model.")]
Quantization = Annotated[Literal["none", "int8"], typer.Option(help="none: float32; int8: a quarter of the size.")]
SourceTypes = Annotated[
    int | None, typer.Option("--src-vocab", min=1, max=10_000_000, help="Source types, if not the corpus's.")
]
TargetTypes = Annotated[
    int | None, typer.Option("--tgt-vocab", min=1, max=10_000_000, help="Target types, if not the corpus's.")
]
TrialSeconds = Annotated[float, typer.Option("--seconds", min=0.0, help="Of updates, over all kinds of training.")]
SavePlan = Annotated[bool, typer.Option("--save", help="Keep it in reference/plans.json, for the report to tell.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Of the experiment and of its table.")]
FromExperiment = Annotated[
    str,
    typer.Option("--from", metavar="EXPERIMENT", help="The one that is copied.", autocompletion=completion.experiments),
]
SourceLanguage = Annotated[str | None, typer.Option("--src", metavar="LANGUAGE", help="A code such as en or fr.")]
TargetLanguage = Annotated[str | None, typer.Option("--tgt", metavar="LANGUAGE", help="A code such as de or cs.")]
DataName = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DATASET", help="A key of `datasets`, to choose one.", autocompletion=completion.datasets
    ),
]
SourceText = Annotated[
    Path | None, typer.Option("--src-text", metavar="FILE", help="Your sentences in --src, one a line; or .gz.")
]
TargetText = Annotated[
    Path | None, typer.Option("--tgt-text", metavar="FILE", help="Their translations into --tgt, line by line.")
]
TextFiles = Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Text, one sentence a line; else stdin.")]
OutPath = Annotated[
    str | None,
    typer.Option("--out", metavar="PATH", help="A file for one FILE; a folder for more, or with a / at its end."),
]
Interactive = Annotated[bool, typer.Option("--interactive", help="Answer line after line, until Ctrl-D.")]
NBest = Annotated[int, typer.Option("--nbest", min=1, max=100, help="Translations of each sentence, best first.")]
BeamSize = Annotated[int | None, typer.Option("--beam", min=1, max=100, help="Of the search; else the experiment's.")]
WithScores = Annotated[bool, typer.Option("--scores", help="Write score TAB text.")]
AttentionOut = Annotated[
    Path | None, typer.Option("--attention", metavar="HTML", help="A page with attention maps of the first sentences.")
]
TranslationEngine = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    typer.Option("--engine", help="auto: CTranslate2 where the run is exported to it as it is now, else torch."),
]
