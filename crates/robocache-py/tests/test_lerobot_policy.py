"""A policy of the LeRobot library trains on our batches, unchanged; skipped where it is not installed."""

from __future__ import annotations

import pytest
import torch

import robocache as rc
from lerobot_library import SAMPLE, lerobot_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FPS, CHUNK, STEPS = 30, 16, 50


def test_an_act_policy_takes_50_steps(tmp_path):
    ACTPolicy = lerobot_name("ACTPolicy", "policies.act.modeling_act")
    ACTConfig = lerobot_name("ACTConfig", "policies.act.configuration_act")
    FeatureType = lerobot_name("FeatureType", "configs.types")
    make_pre_post_processors = lerobot_name("make_pre_post_processors", "policies.factory")
    dataset_to_policy_features = lerobot_name(
        "dataset_to_policy_features",
        "utils.feature_utils",  # 0.6
        "datasets.utils",  # 0.4
    )
    if not SAMPLE.exists():
        pytest.skip("no sample data here")
    rc.ingest(SAMPLE, tmp_path / "cache", progress=False)
    cache = rc.open(tmp_path / "cache")

    # From here on as LeRobot's own training script does, with `cache.meta` for `dataset.meta`.
    features = dataset_to_policy_features(cache.meta.features)
    outputs = {key: value for key, value in features.items() if value.type is FeatureType.ACTION}
    inputs = {key: value for key, value in features.items() if key not in outputs}
    config = ACTConfig(
        input_features=inputs,
        output_features=outputs,
        chunk_size=CHUNK,
        n_action_steps=CHUNK,
        dim_model=64,
        dim_feedforward=128,
        n_heads=4,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        pretrained_backbone_weights=None,
        device="cpu",
    )
    torch.manual_seed(0)
    policy = ACTPolicy(config)
    policy.train()
    before, _ = make_pre_post_processors(config, dataset_stats=cache.meta.stats)
    optimizer = torch.optim.AdamW(policy.get_optim_params(), lr=1e-3)
    loader = rc.Loader(
        cache,
        4,
        delta_timestamps={"action": [i / cache.meta.fps for i in range(CHUNK)]},
        image_dtype="float32",
        seed=0,
    )

    losses: list[float] = []
    while len(losses) < STEPS:
        for batch in loader:
            loss, _ = policy.forward(before(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == STEPS:
                break
    assert all(torch.isfinite(torch.tensor(losses)))
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    print(f"loss {first:.2f} -> {last:.2f}")
    assert last < 0.7 * first
