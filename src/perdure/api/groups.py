"""What is asked about groups: the results, by the code that waits for them, and a call, by whoever ends it."""

from __future__ import annotations

from perdure.api.reading import reading
from perdure.core import ids, limits
from perdure.core import workflow_messages as w
from perdure.core.errors import NotFound
from perdure.core.groups import group_of
from perdure.core.states import Kind
from perdure.store.base import Store

PAGES = 20
"""That are read at once."""
MAX_BYTES = 4 * 1024 * 1024
"""Of one answer; a single larger page is sent alone."""


async def results(store: Store, namespace: str, body: w.GroupResults) -> w.GroupResultsReply:
    """NotFound for what is no group of this namespace."""
    group_id = ids.parse(body.group_id, "group_id")
    after = limits.integer(body.after, "after", 0, limits.MAX_GROUP)
    with reading():
        row = (await store.read([group_id])).get(group_id)
        if row is None or row.namespace != namespace or row.kind is not Kind.GROUP:
            raise NotFound("there is no such group", field="group_id")
        last = group_of(row).count + after
        found = (await store.histories({group_id: last}, PAGES + 1)).get(group_id, [])
    sent: list[bytes] = []
    size = 0
    for page in found:
        size += len(page.data)
        if len(sent) == PAGES or (sent and size > MAX_BYTES):
            return w.GroupResultsReply(sent, more=True)
        sent.append(page.data)
    return w.GroupResultsReply(sent)


async def find_activity(store: Store, run_id: bytes, activity_id: str) -> bytes | None:
    """The open activity of a run that has this id; that of a call of a group is `group_id[index]`."""
    found = await store.find_activity(run_id, activity_id)
    if found is None and activity_id.endswith("]"):
        group = await store.find_activity(run_id, activity_id.rpartition("[")[0])
        found = None if group is None else await store.find_activity(group, activity_id)
    return found
