-- What applications call inside their own transactions: a job that exists if they commit, and a job that is over if they
-- commit. Three functions are theirs; the number in a name is its version, and what one number means never changes:
--
--     enqueue_v1       adds a job whose parts are packed as the tables hold them; for SDKs
--     enqueue_json_v1  the same from JSON, with the fields of POST /v1/tasks; for everybody else
--     complete_v1      ends a leased job that succeeded, as decide.succeed says
--
-- They run with the rights of the schema's owner and a pinned search path, so an application's role needs nothing but
-- usage of the schema and leave to execute them. A refusal is an exception whose SQLSTATE tells the kind, and whose
-- fields COLUMN, CONSTRAINT and DATATYPE name the argument, its limit and the kind of the value:
--
--     PD400 invalid argument   PD413 too large   PD409 key used with another body   PD410 the lease is lost
--
-- The limits are those of core/limits.py. A row added here has no place in its lane, because places are given out by
-- servers: its alarm is due at once, and a notification at commit says so. Keys are taken before the row is inserted, in
-- the order of the calls; whoever meets a key that another transaction holds waits for that one's end.

create function refuse(code text, argument text, allowed text, said text, kind text default '') returns void
language plpgsql as $$
begin
    raise exception using
        errcode = code, message = said, column = argument, constraint = allowed, datatype = kind;
end
$$;

-- limits.name
create function check_name(value text, argument text) returns void language plpgsql immutable as $$
declare
    allowed constant text := '1 to 255 bytes of printable text';
begin
    if value is null then
        perform refuse('PD400', argument, allowed, argument || ' is null', 'null');
    elsif octet_length(value) not between 1 and 255 then
        perform refuse('PD400', argument, allowed, format('%s has %s bytes', argument, octet_length(value)), 'str');
    elsif left(value, 1) = ' ' or right(value, 1) = ' ' or value ~ (
        '[\u0001-\u001F\u007F-\u00A0\u00AD\u0600-\u0605\u061C\u06DD\u070F\u0890-\u0891\u08E2\u1680\u180E'
        '\u2000-\u200F\u2028-\u202F\u205F-\u2064\u2066-\u206F\u3000\uE000-\uF8FF\uFEFF\uFFF9-\uFFFB'
        '\U000110BD\U000110CD\U00013430-\U00013438\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A'
        '\U000E0001\U000E0020-\U000E007F\U000F0000-\U000FFFFD\U00100000-\U0010FFFD]'
    ) then
        perform refuse('PD400', argument, allowed, argument || ' has characters that cannot be shown', 'str');
    end if;
end
$$;

-- limits.integer; null passes where it stands for "not given".
create function check_number(value bigint, argument text, lowest bigint, highest bigint) returns void
language plpgsql immutable as $$
begin
    if value not between lowest and highest then
        perform refuse('PD400', argument, format('%s to %s', lowest, highest), format('%s is %s', argument, value), 'int');
    end if;
end
$$;

create function check_size(value bytea, argument text, highest integer) returns void language plpgsql immutable as $$
begin
    if octet_length(value) > highest then
        perform refuse(
            'PD413', argument, format('%s bytes', highest),
            format('%s has %s bytes', argument, octet_length(value)), 'bytes'
        );
    end if;
end
$$;

-- A UUIDv7 as core/ids.py makes it, but that the 12 bits behind the milliseconds are parts of one: ids that a session
-- makes one after the other sort in that order.
create function new_task_id(now bigint, slot bigint) returns uuid language sql volatile as $$
    select (
        lpad(to_hex(now / 1000), 12, '0')
        || to_hex(28672 + now % 1000 * 4096 / 1000)
        || to_hex(32768 + coalesce(slot, floor(random() * 16384)::bigint))
        || right(gen_random_uuid()::text, 12)
    )::uuid
$$;

-- All times are microseconds, those that end in "_at" since the epoch and the others as durations. `payload` is the
-- MessagePack of core/model.py Payloads, `headers` of a map of text, `retry_policy` and `timeouts` of the values of that
-- module; `max_attempts`, `lease_length`, `schedule_to_start` and `schedule_to_close` repeat what those two say. With an
-- `idempotency_key`, `digest` (at most 64 bytes) is what two bodies have in common exactly if they are the same, and
-- `slot` the one of the key (core/ids.py slot_of); null takes a random slot.
create function enqueue_v1(
    namespace text,
    task_type text,
    payload bytea,
    queue text default 'default',
    app text default 'default',
    idempotency_key text default null,
    digest bytea default '',
    slot bigint default null,
    delay bigint default 0,
    run_at bigint default null,
    priority bigint default 3,
    fairness_key text default '',
    headers bytea default null,
    retry_policy bytea default null,
    max_attempts bigint default 5,
    timeouts bytea default null,
    lease_length bigint default 30000000,
    schedule_to_start bigint default null,
    schedule_to_close bigint default null,
    identity text default ''
) returns table (task_id uuid, duplicate boolean)
language plpgsql volatile security definer set search_path = perdure, pg_temp as $$
#variable_conflict use_variable
declare
    ten_years constant bigint := 316224000000000;
    created constant bigint := now_us();
    start bigint;
    made uuid;
    holder record;
begin
    perform check_name(namespace, 'namespace');
    perform check_name(task_type, 'task_type');
    perform check_name(queue, 'queue');
    perform check_name(app, 'app');
    if fairness_key is distinct from '' then
        perform check_name(fairness_key, 'fairness_key');
    end if;
    if payload is null or octet_length(payload) = 0 then
        perform refuse('PD400', 'payload', 'MessagePack of payloads', 'payload is empty', 'bytes');
    end if;
    perform check_size(payload, 'payload', 263168);
    perform check_size(headers, 'headers', 65536);
    perform check_size(retry_policy, 'retry_policy', 65536);
    perform check_size(timeouts, 'timeouts', 1024);
    perform check_size(digest, 'digest', 64);
    if identity is null or length(identity) > 2000 then
        perform refuse('PD400', 'identity', '2000 characters', 'identity is too long', 'str');
    end if;
    perform check_number(slot, 'slot', 0, 16383);
    perform check_number(coalesce(delay, -1), 'delay', 0, ten_years);
    perform check_number(run_at, 'run_at', 0, 4102444800000000 + ten_years);
    perform check_number(coalesce(priority, 0), 'priority', 1, 5);
    perform check_number(coalesce(max_attempts, 0), 'max_attempts', 1, 10000);
    perform check_number(coalesce(lease_length, 0), 'lease_length', 1000000, ten_years);
    perform check_number(schedule_to_start, 'schedule_to_start', 1000, ten_years);
    perform check_number(schedule_to_close, 'schedule_to_close', 1000, ten_years);
    if delay > 0 and run_at is not null then
        perform refuse('PD400', 'run_at', 'one of delay, run_at', 'delay and run_at exclude each other');
    end if;

    made := new_task_id(created, slot);
    if idempotency_key is not null then
        perform check_name(idempotency_key, 'idempotency_key');
        select * into holder
        from take_key(namespace, app, idempotency_key, made, coalesce(digest, ''), created) as taken;
        if holder.task_id is not null then
            if holder.digest <> coalesce(digest, '') then
                perform refuse(
                    'PD409', 'idempotency_key', '',
                    format('idempotency key ''%s'' was used with another body', idempotency_key)
                );
            end if;
            return query select holder.task_id, true;
            return;
        end if;
    end if;

    start := greatest(created + delay, run_at);
    insert into tasks (
        id, created_at, updated_at, lease_length, lease_bits, done_bits, max_attempts, attempt, lost_deliveries,
        lease_number, done_number, state, kind, priority, done_state, received, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, ready_at, expires_at, deadline, wake_at, idempotency_key, retry_policy,
        timeouts, headers, payload
    )
    values (
        made, created, created, lease_length, 0, 0, max_attempts, 0, 0,
        0, 0, 1, 1, priority, 0, false, namespace, app, task_type, queue,
        namespace || chr(31) || queue || chr(31) || 'w',
        fairness_key, identity, run_at, start, start + schedule_to_start, start + schedule_to_close, start,
        idempotency_key, retry_policy, timeouts, headers, payload
    );
    if start < created + 250000 then  -- servers look for alarms by themselves four times a second
        perform pg_notify('perdure', 'lcQAkJDCww==');  -- an engine/hints.py Hint that says: an alarm is due
    end if;
    return query select made, false;
end
$$;

-- Give a key to a task; no row if it is taken, else who holds it. A key whose time is over is free once the task that
-- it was given to has closed.
create function take_key(in_namespace text, in_app text, in_key text, made uuid, body bytea, now bigint)
returns table (task_id uuid, digest bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
    until constant bigint := now + 86400000000;
    holder keys;
begin
    loop
        insert into keys (key, namespace, app, kind, task_id, digest, expires_at)
        values (in_key, in_namespace, in_app, 'task', made, body, until)
        on conflict do nothing;
        exit when found;
        select * into holder
        from keys
        where key = in_key and namespace = in_namespace and app = in_app and kind = 'task';
        continue when not found;
        if holder.expires_at > now or exists (select from tasks where id = holder.task_id) then
            return query select holder.task_id, holder.digest;
            exit;
        end if;
        update keys
        set task_id = made, digest = body, expires_at = until
        where key = in_key and namespace = in_namespace and app = in_app and kind = 'task'
            and task_id = holder.task_id;
        exit when found;
    end loop;
end
$$;

-- `lease` is the token of a delivery (28 bytes), `result` the MessagePack of Payloads; `progress` and `checkpoint`, as
-- the tables hold them, are kept if they are null. Fenced by the whole lease: if it is not the current one of a running
-- job, PD410 makes the transaction that it was called in useless, as it must be.
create function complete_v1(lease bytea, result bytea, progress bytea default null, checkpoint bytea default null)
returns void
language plpgsql volatile security definer set search_path = perdure, pg_temp as $$
#variable_conflict use_column
declare
    done_id uuid;
    lease_no integer;
    bits bigint;
    found_task record;
begin
    if lease is null or octet_length(lease) <> 28 then
        perform refuse('PD400', 'lease', '28 bytes', 'lease is not a lease token', 'bytes');
    end if;
    if result is null or octet_length(result) = 0 then
        perform refuse('PD400', 'result', 'MessagePack of payloads', 'result is empty', 'bytes');
    end if;
    perform check_size(complete_v1.result, 'result', 263168);
    perform check_size(complete_v1.progress, 'progress', 16384);
    perform check_size(complete_v1.checkpoint, 'checkpoint', 263168);
    done_id := encode(substr(lease, 1, 16), 'hex')::uuid;
    lease_no := ('x' || encode(substr(lease, 17, 4), 'hex'))::bit(32)::integer;
    bits := ('x' || encode(substr(lease, 21, 8), 'hex'))::bit(64)::bigint;

    -- As the statement `succeed` of tasks.sql, but that it waits for the row.
    with held as materialized (
        select id from tasks
        where id = done_id and state = 2 and kind = 1 and lease_number = lease_no and lease_bits = bits
        for update
    ),
    clock as materialized (
        select count(*), now_us() as now from held
    ),
    ended as (
        delete from tasks
        using held, clock
        where tasks.id = held.id
        returning tasks.*, greatest(clock.now, tasks.updated_at) as now
    )
    insert into closed_tasks (
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, done_number, done_bits, done_state, state, updated_at, closed_at,
        attempt, lost_deliveries, started_at, cancel_requested_at, cancel_reason, progress, checkpoint, result
    )
    select
        id, created_at, lease_length, max_attempts, lease_number, kind, priority, namespace, app, type, queue, lane,
        fairness_key, identity, run_at, expires_at, deadline, attempt_started_at, retry_of, idempotency_key, worker,
        retry_policy, timeouts, headers, payload, lease_number, lease_bits, 10, 10, now, now,
        attempt + 1, lost_deliveries, coalesce(started_at, attempt_started_at), cancel_requested_at, cancel_reason,
        coalesce(complete_v1.progress, ended.progress), coalesce(complete_v1.checkpoint, ended.checkpoint),
        complete_v1.result
    from ended;

    if not found then
        select state, worker into found_task from tasks where id = done_id;
        if not found then
            select state, worker into found_task from closed_tasks where id = done_id;
        end if;
        perform refuse('PD410', 'lease', '', case
            when found_task.state is null then 'there is no such task any more'
            when found_task.state >= 10 then 'the task is ' || state_name(found_task.state)
            when found_task.state = 2 then 'the task was leased again, to ' || coalesce(found_task.worker, 'a worker')
            else 'the lease ended and the task is ' || state_name(found_task.state)
        end);
    end if;
    -- The row is locked until the transaction ends, and what the worker reports about it waits: no client may go to sleep.
    perform set_config('idle_in_transaction_session_timeout', '30s', true)
    where current_setting('idle_in_transaction_session_timeout')::interval not between '1 ms' and '30 s';
    -- A Hint that names a task which has closed.
    perform pg_notify('perdure', encode('\x94c4009091c410'::bytea || uuid_send(done_id) || '\xc2'::bytea, 'base64'));
end
$$;

-- core/states.py State
create function state_name(state smallint) returns text language sql immutable as $$
    select case state
        when 1 then 'ENQUEUED' when 2 then 'LEASED' when 3 then 'WAITING' when 4 then 'RETRY_WAIT'
        when 10 then 'SUCCEEDED' when 11 then 'FAILED' when 12 then 'CANCELED' when 13 then 'EXPIRED'
        when 14 then 'TERMINATED' when 15 then 'TIMED_OUT' when 16 then 'CONTINUED_AS_NEW'
    end
$$;

-- JSON: the payload as it is written, and `options`, of which every one may be missing or null: namespace, queue, app,
-- idempotency_key, delay, run_at, priority, fairness_key, retry, timeouts, headers, identity; what they mean is said of
-- POST /v1/tasks. Two bodies are the same if they are so in type, text of the payload, and options. Ids of keyed jobs have
-- a random slot.
create function enqueue_json_v1(task_type text, payload json default 'null', options jsonb default '{}')
returns table (task_id uuid, duplicate boolean)
language plpgsql volatile security definer set search_path = perdure, pg_temp as $$
#variable_conflict use_variable
declare
    given jsonb := jsonb_strip_nulls(coalesce(options, '{}'));
    written text := coalesce(payload::text, 'null');
    retry jsonb;
    times jsonb;
    unknown text;
begin
    perform check_kind(given, 'options', 'object');
    unknown := (select string_agg(name, ', ') from jsonb_object_keys(given) as names (name) where name not in (
        'namespace', 'queue', 'app', 'idempotency_key', 'delay', 'run_at', 'priority', 'fairness_key', 'retry',
        'timeouts', 'headers', 'identity'
    ));
    if unknown is not null then
        perform refuse('PD400', unknown, 'the fields of POST /v1/tasks', 'there is no option ' || unknown);
    end if;
    perform check_kind(given -> name, name, 'string')
    from unnest('{namespace,queue,app,idempotency_key,run_at,fairness_key,identity}'::text[]) as names (name);
    perform check_size(convert_to(written, 'UTF8'), 'payload', 262144 - 18);  -- less the name of the encoding
    retry := checked_retry(given -> 'retry');
    times := checked_timeouts(given -> 'timeouts');
    return query select * from enqueue_v1(
        namespace => coalesce(given ->> 'namespace', 'default'),
        task_type => task_type,
        payload => '\x9192'::bytea || packed('{"encoding": "json/plain"}') || packed_bytes(convert_to(written, 'UTF8')),
        queue => coalesce(given ->> 'queue', 'default'),
        app => coalesce(given ->> 'app', 'default'),
        idempotency_key => given ->> 'idempotency_key',
        digest => sha256(convert_to(jsonb_build_array(task_type, written, given - 'idempotency_key')::text, 'UTF8')),
        delay => coalesce(micros(given -> 'delay', 'delay', 0), 0),
        run_at => moment(given ->> 'run_at', 'run_at'),
        priority => coalesce(whole(given -> 'priority', 'priority', 1, 5), 3),
        fairness_key => coalesce(given ->> 'fairness_key', ''),
        headers => checked_headers(given -> 'headers'),
        retry_policy => packed(retry),
        max_attempts => coalesce(whole(retry -> 'max_attempts', 'retry.max_attempts', 1, 10000), 5),
        timeouts => packed(times),
        lease_length => coalesce(micros(times -> 'lease', 'timeouts.lease', 1), 30000000),
        schedule_to_start => micros(times -> 'schedule_to_start', 'timeouts.schedule_to_start', 0.001),
        schedule_to_close => micros(times -> 'schedule_to_close', 'timeouts.schedule_to_close', 0.001),
        identity => coalesce(given ->> 'identity', '')
    );
end
$$;

create function check_kind(value jsonb, argument text, wanted text) returns void language plpgsql immutable as $$
begin
    if jsonb_typeof(value) <> wanted then
        perform refuse(
            'PD400', argument, 'JSON ' || wanted, format('%s is a %s', argument, jsonb_typeof(value)),
            jsonb_typeof(value)
        );
    end if;
end
$$;

-- An integer between two bounds.
create function whole(value jsonb, argument text, lowest bigint, highest bigint) returns bigint
language plpgsql immutable as $$
begin
    perform check_kind(value, argument, 'number');
    if value::numeric not between lowest and highest or value::numeric <> trunc(value::numeric) then
        perform refuse('PD400', argument, format('%s to %s', lowest, highest), format('%s is %s', argument, value), 'int');
    end if;
    return value::numeric::bigint;
end
$$;

-- A number between two bounds.
create function fraction(value jsonb, argument text, lowest numeric, highest numeric) returns numeric
language plpgsql immutable as $$
begin
    perform check_kind(value, argument, 'number');
    if value::numeric not between lowest and highest then
        perform refuse('PD400', argument, format('%s to %s', lowest, highest), format('%s is %s', argument, value), 'float');
    end if;
    return value::numeric;
end
$$;

-- A duration as core/durations.py reads it, in seconds: a number, "90s", "1h30m", "PT1H30M"; at most ten years.
create function seconds(value jsonb, argument text, lowest numeric) returns numeric language plpgsql immutable as $$
declare
    written constant text := value #>> '{}';
    units constant jsonb := '{"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}';
    number numeric;
begin
    if value is null then
        return null;
    elsif jsonb_typeof(value) = 'number' then
        number := value::numeric;
    elsif jsonb_typeof(value) = 'string' and length(written) <= 100 then
        if written ~ '^\d+(\.\d+)?$' then
            number := written::numeric;
        elsif written ~ '^(\d+(\.\d+)?(ms|s|m|h|d|w))+$' then
            number := (
                select sum(part[1]::numeric * (units ->> part[2])::numeric)
                from regexp_matches(written, '(\d+(?:\.\d+)?)(ms|s|m|h|d|w)', 'g') as parts (part)
            );
        elsif written ~ '^P(?=.)(\d+(\.\d+)?W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?$' then
            number := (
                select sum(part[1]::numeric * (units ->> lower(part[2]))::numeric)
                from regexp_matches(written, '(\d+(?:\.\d+)?)([WDHMS])', 'g') as parts (part)
            );
        end if;
    end if;
    if number is null or number not between lowest and 316224000 then
        perform refuse(
            'PD400', argument, format('%s to 316224000 seconds', lowest),
            format('%s is no duration in range: %s; write seconds, "1h30m" or "PT1H30M"', argument, left(value::text, 50)),
            jsonb_typeof(value)
        );
    end if;
    return number;
end
$$;

create function micros(value jsonb, argument text, lowest numeric) returns bigint language sql immutable as $$
    select (seconds(value, argument, lowest) * 1000000)::bigint
$$;

-- RFC 3339 with an offset, in microseconds since the epoch.
create function moment(value text, argument text) returns bigint language plpgsql immutable as $$
declare
    form constant text := '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)$';
    allowed constant text := 'RFC 3339 with an offset';
begin
    if value !~ form then
        perform refuse('PD400', argument, allowed, format('%s is %s', argument, left(value, 50)), 'datetime');
    end if;
    return (extract(epoch from value::timestamptz) * 1000000)::bigint;
exception
    when datetime_field_overflow or invalid_datetime_format then
        perform refuse('PD400', argument, allowed, format('%s is %s', argument, left(value, 50)), 'datetime');
end
$$;

-- limits.headers, packed
create function checked_headers(given jsonb) returns bytea language plpgsql immutable as $$
begin
    perform check_kind(given, 'headers', 'object');
    perform check_kind(value, 'headers.' || key, 'string') from jsonb_each(given);
    if (select sum(octet_length(key) + octet_length(value)) from jsonb_each_text(given)) > 16384 then
        perform refuse('PD413', 'headers', '16384 bytes', 'headers are too large');
    end if;
    return packed(given);
end
$$;

-- limits.retry_policy
create function checked_retry(given jsonb) returns jsonb language plpgsql immutable as $$
declare
    base numeric;
begin
    perform check_kind(given, 'retry', 'object');
    perform check_fields(given, 'retry', '{max_attempts,base,factor,cap,fatal_types,delays}');
    perform whole(given -> 'max_attempts', 'retry.max_attempts', 1, 10000);
    base := coalesce(fraction(given -> 'base', 'retry.base', 0.001, 86400), 1);
    perform fraction(given -> 'factor', 'retry.factor', 1, 100);
    perform fraction(coalesce(given -> 'cap', '3600'), 'retry.cap', base, 31 * 86400) where given is not null;
    perform check_kind(given -> name, 'retry.' || name, 'array') from unnest('{fatal_types,delays}'::text[]) as names (name);
    if jsonb_array_length(given -> 'fatal_types') > 100 or jsonb_array_length(given -> 'delays') > 100 then
        perform refuse('PD400', 'retry', '100 fatal_types, 100 delays', 'retry has too many fatal_types or delays');
    end if;
    perform check_kind(value, 'retry.fatal_types', 'string'), check_name(value #>> '{}', 'retry.fatal_types')
    from jsonb_array_elements(given -> 'fatal_types');
    perform fraction(value, 'retry.delays', 0.001, 31 * 86400) from jsonb_array_elements(given -> 'delays');
    return given;
end
$$;

-- limits.timeouts: numbers of seconds
create function checked_timeouts(given jsonb) returns jsonb language plpgsql immutable as $$
begin
    perform check_kind(given, 'timeouts', 'object');
    perform check_fields(
        given, 'timeouts', '{schedule_to_start,start_to_close,schedule_to_close,heartbeat,lease}'
    );
    return (
        select jsonb_object_agg(
            key, seconds(value, 'timeouts.' || key, case key when 'lease' then 1 else 0.001 end)
        )
        from jsonb_each(given)
    );
end
$$;

create function check_fields(given jsonb, argument text, known text[]) returns void language plpgsql immutable as $$
declare
    unknown text := (select min(name) from jsonb_object_keys(given) as names (name) where name <> all (known));
begin
    if unknown is not null then
        perform refuse(
            'PD400', argument || '.' || unknown, array_to_string(known, ', '),
            format('%s has no field %s', argument, unknown)
        );
    end if;
end
$$;

-- MessagePack of JSON: numbers are 64-bit integers where they are whole, else doubles. Null for null.
create function packed(value jsonb) returns bytea language plpgsql immutable strict as $$
begin
    return case jsonb_typeof(value)
        when 'object' then '\xde'::bytea || substr(int4send((select count(*) from jsonb_object_keys(value))::integer), 3)
            || coalesce((
                select string_agg(packed(to_jsonb(key)) || packed(item), '') from jsonb_each(value) as each (key, item)
            ), '')
        when 'array' then '\xdc'::bytea || substr(int4send(jsonb_array_length(value)), 3)
            || coalesce((select string_agg(packed(item), '') from jsonb_array_elements(value) as each (item)), '')
        when 'string' then '\xdb'::bytea || int4send(octet_length(value #>> '{}')) || convert_to(value #>> '{}', 'UTF8')
        when 'boolean' then case when value::boolean then '\xc3'::bytea else '\xc2'::bytea end
        when 'number' then case
            when value::numeric = trunc(value::numeric) and abs(value::numeric) < 9223372036854775807
                then '\xd3'::bytea || int8send(value::numeric::bigint)
            else '\xcb'::bytea || float8send(value::numeric::double precision)
        end
        else '\xc0'::bytea
    end;
end
$$;

create function packed_bytes(value bytea) returns bytea language sql immutable strict as $$
    select '\xc6'::bytea || int4send(octet_length(value)) || value
$$;

-- New functions are everybody's: these are not. `now_us` stays as it was.
revoke all on all routines in schema perdure from public;
grant execute on function now_us() to public;
