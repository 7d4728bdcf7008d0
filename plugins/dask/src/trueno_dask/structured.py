from typing import Any
from trueno_dask.request import Request
def run(request: Request) -> Any:
    raise NotImplementedError
