"""Promises about how many processes share one run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookscope.errors import UsageError
from hookscope.run.shard import Launch, Shard, choose, launch, parse, refuse_shared_stdin


@given(st.integers(0, 500), st.integers(1, 130))
def test_shares_are_even_and_one_behind_the_other_the_whole(items, count):
    everything = range(items)
    shares = [Shard(index, count).share(everything) for index in range(1, count + 1)]
    assert [item for share in shares for item in share] == list(everything)
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


def test_sixty_four_ranks_share_a_million():
    shares = [Shard(index, 64).share(range(1_000_000)) for index in range(1, 65)]
    assert {len(share) for share in shares} == {15_625}
    assert [item for share in shares for item in share] == list(range(1_000_000))


def test_a_shard_is_counted_from_one():
    assert parse("3/8") == parse(" 03 / 8 ") == Shard(3, 8) == (3, 8)


@pytest.mark.parametrize("text", ["0/8", "9/8", "1/0", "0/0", "-1/8", "3", "3/8/9", " ", "a/b"])
def test_what_is_no_share_is_a_usage_error(text):
    with pytest.raises(UsageError, match=re.escape(text)):
        parse(text)


def test_counting_from_zero_is_explained():
    with pytest.raises(UsageError, match="1/8 to 8/8"):
        parse("0/8")


def test_ranks_of_torchrun_are_shares():
    environ = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"}
    launched = launch(environ)
    assert launched == Launch(rank=2, world=4, local_rank=0, restarts=1)
    assert not launched.leads
    assert choose(None, launched) == Shard(3, 4)


def test_a_process_of_its_own_does_it_all():
    assert launch({}) is None
    assert launch({"RANK": "", "WORLD_SIZE": ""}) is None
    assert launch({"RANK": "0"}) is None
    assert choose(None, None) is None
    assert choose("2/3", None) == Shard(2, 3)


def test_the_ranks_of_an_array_job_divide_its_share():
    world = 3
    together = [
        choose(f"{job}/4", Launch(rank, world)) for job in range(1, 5) for rank in range(world)
    ]
    assert together == [Shard(index, 12) for index in range(1, 13)]


@pytest.mark.parametrize(("rank", "world"), [("4", "4"), ("-1", "4"), ("x", "4"), ("0", "0")])
def test_contradicting_variables_are_a_usage_error(rank, world):
    with pytest.raises(UsageError, match=f"RANK={rank}"):
        launch({"RANK": rank, "WORLD_SIZE": world})


def test_ranks_cannot_share_a_list_on_stdin():
    for arguments, nul in ((["a.jpg", "-"], False), ([], True)):
        with pytest.raises(UsageError, match="stdin"):
            refuse_shared_stdin(arguments, nul, Launch(0, 2))
        refuse_shared_stdin(arguments, nul, Launch(0, 1))
        refuse_shared_stdin(arguments, nul, None)
    refuse_shared_stdin(["a.jpg"], False, Launch(0, 2))
