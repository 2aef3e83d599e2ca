"""What the commands take, as typer wants it said."""

from typing import Annotated, Literal

import typer

DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="A key of `datasets` in params.yaml.")]
CorpusName = Annotated[str, typer.Argument(metavar="CORPUS", help="A key of `corpora` in params.yaml.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="EXPERIMENT-SEED; EXPERIMENT is a key of `experiments`.")]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN RUN ...", help="Two runs or more, the baseline first.")]
SentenceCount = Annotated[
    int, typer.Option("--sentences", min=0, help="How many sentences that gain, and that lose, to show.")
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A file of workflow/tables/, without .yaml.")]
OptionalTable = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="A file of workflow/tables/, without .yaml; else the active one."),
]
ClaimName = Annotated[
    str, typer.Argument(metavar="CLAIM", help="An id of reference/claims.yaml, or a number of its row, such as 26.4.")
]
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
