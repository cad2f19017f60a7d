"""torch's AdamW, without torch's compiler."""

import inspect
from typing import final

import torch


@final
class AdamW(torch.optim.AdamW):
    """As torch's: the same updates and the same state, by the same methods without their decorators.

    The decorators are for `torch.compile`. They import the compiler at the first call, used or not, which takes more
    than a second, and 70 MiB of memory until the process ends.
    """

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
