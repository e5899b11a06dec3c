"""A pytest plugin: torch without what came with 2.11, as far as RoboCache can tell."""

import torch

if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
