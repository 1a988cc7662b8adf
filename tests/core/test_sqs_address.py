"""Addresses of SQS: what is read, which queue is which, and what is refused."""

from __future__ import annotations

import pytest

from bide.core.sqs_address import SqsAddress, sqs_address
from bide.errors import SettingError


def test_an_address_names_a_prefix_and_its_options() -> None:
    address = sqs_address("sqs://jobs?region=eu-west-1&endpoint=http://127.0.0.1:4566/&create=true&wait=5")
    assert address == SqsAddress("jobs", "eu-west-1", "http://127.0.0.1:4566", create=True, wait_s=5)
    assert address.place == "sqs://jobs (eu-west-1, http://127.0.0.1:4566)"
    assert sqs_address("sqs://jobs") == SqsAddress("jobs")
    assert SqsAddress("jobs").place == "sqs://jobs"


def test_each_queue_has_one_of_sqs_and_one_for_the_dead() -> None:
    address = SqsAddress("jobs")
    assert [address.name_of(queue) for queue in ("default", "mail")] == ["jobs", "jobs-mail"]
    assert [address.dead_name_of(queue) for queue in ("default", "mail")] == ["jobs-dead", "jobs-mail-dead"]
    names = ["jobs", "jobs-mail", "jobs-dead", "jobs-mail-dead", "jobs-", "jobs-default", "jobsmail", "other"]
    assert [address.queue_of(name) for name in names] == ["default", "mail", *[None] * 6]


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("mail.fifo", "FIFO"),
        ("bad.name", "letters, digits"),
        ("dead", "ends as the queues of dead items do"),
        ("mail-dead", "ends as the queues of dead items do"),
        ("m" * 71, "75 characters"),
    ],
)
def test_a_queue_that_sqs_cannot_name_is_refused(queue: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        SqsAddress("jobs").name_of(queue)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sqs://key:secret@jobs", "AWS_PROFILE"),
        ("sqs://jobs?region=eu-west-1&pw=a@b", "AWS_PROFILE"),
        ("sqs://jobs/path", "no path"),
        ("sqs://jobs#x", "no path"),
        ("sqs://", "cannot name an SQS queue"),
        ("sqs://jobs.fifo", "FIFO"),
        ("sqs://jobs-dead", "no room"),
        (f"sqs://{'j' * 76}", "no room"),
        ("sqs://jobs?regoin=x", "Did you mean 'region'"),
        ("sqs://jobs?zzz=1", "it has region, endpoint, create, wait"),
        ("sqs://jobs?region=EU%20west", "region cannot be"),
        ("sqs://jobs?endpoint=localhost:4566", "endpoint cannot be"),
        ("sqs://jobs?endpoint=http://localhost:port", "endpoint cannot be"),
        ("sqs://jobs?create=maybe", "write true or false"),
        ("sqs://jobs?wait=0", "from 1 to 20"),
        ("sqs://jobs?wait=21", "from 1 to 20"),
        ("sqs://jobs?wait=soon", "from 1 to 20"),
    ],
)
def test_a_wrong_address_is_refused_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(SettingError, match=said) as raised:
        sqs_address(text)
    assert "secret" not in str(raised.value).replace("AWS_SECRET_ACCESS_KEY", "").lower()
