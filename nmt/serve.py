"""A local page that translates, with a JSON API: `python -m nmt.serve checkpoint=RUN [compare=OTHER] [key=value]`."""

from importlib.util import find_spec

from nmt.cli import hydra_main
from nmt.config.schema import ServeConfig
from nmt.errors import UserError


@hydra_main("serve", ServeConfig)
def main(config: ServeConfig) -> None:
    """Serve the page and the API until interrupted."""
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise UserError(f"nmt.serve needs {' and '.join(missing)}: pip install -e '.[serve]'")
    from nmt.serving.server import serve  # imports torch, which takes seconds, only after the options are checked

    serve(config)


if __name__ == "__main__":
    main()
