import pytest

from nmt.models.seq2seq import Seq2Seq
from tests.models.small import name_of, small_model, variants


@pytest.fixture(params=variants(), ids=name_of)
def model(request) -> Seq2Seq:
    return small_model(**request.param)
