"""Logs are JSON lines with the context of the task that wrote them."""

import asyncio
import json
import logging
import sys

from esd.services.runtime import logs


def line(**fields: object) -> dict[str, object]:
    record = logging.LogRecord("esd.test", logging.WARNING, "file.py", 1, "row %d is late", (7,), None)
    record.__dict__.update(fields)
    text = logs.JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_has_time_level_logger_and_message() -> None:
    written = line()
    assert written.pop("time")
    assert written == {"level": "warning", "logger": "esd.test", "message": "row 7 is late"}


def test_extra_fields_are_kept_even_if_json_does_not_know_them() -> None:
    assert line(iteration=3, path=sys)["iteration"] == 3
    assert "module 'sys'" in str(line(path=sys)["path"])


def test_a_traceback_is_one_line() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        written = line(exc_info=sys.exc_info())
    assert "ValueError: wrong" in str(written["exception"])


async def test_a_line_names_the_span_of_its_thread_until_there_is_another_or_none() -> None:
    async def elsewhere() -> dict[str, object]:
        return line()

    loop = asyncio.get_running_loop()

    def traced(number: str) -> None:
        logs.name_span({"trace_id": number, "span_id": "1"})
        assert line()["trace_id"] == number
        # Such a task may live long, and has the context of the thread.
        assert "trace_id" not in asyncio.run_coroutine_threadsafe(elsewhere(), loop).result(timeout=60)
        logs.name_span({})
        assert "trace_id" not in line()

    await asyncio.gather(asyncio.to_thread(traced, "a"), asyncio.to_thread(traced, "b"))
    assert "trace_id" not in line()


async def test_context_belongs_to_its_task_and_the_tasks_it_starts() -> None:
    async def child() -> dict[str, object]:
        logs.bind(step=1)
        return line()

    async def parent(worker: int) -> tuple[dict[str, object], dict[str, object]]:
        logs.bind(worker=worker)
        return await asyncio.create_task(child()), line()

    for worker, (inner, outer) in enumerate(await asyncio.gather(parent(0), parent(1))):
        assert (inner["worker"], inner["step"]) == (worker, 1)
        assert outer["worker"] == worker
        assert "step" not in outer
    assert "worker" not in line()
