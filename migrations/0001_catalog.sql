-- One text for Postgres and SQLite: times are bigint microseconds since 1970 (0: not yet), flags are 0 or 1,
-- JSON is text.

-- +goose Up

-- Who may ask. Authoritative: a rebuild of the projection leaves it alone.
create table keys (
    key_id   text   not null primary key,
    tenant   text   not null,
    name     text   not null,
    hash     text   not null unique, -- SHA-256 of the secret, hex
    scopes   text   not null,        -- JSON array
    created  bigint not null,
    revoked  bigint not null
);
create index keys_of_tenant on keys (tenant, created);

-- How far the projection has come in each partition's stream, and which recorder is at it.
create table positions (
    part       integer not null primary key,
    stream_seq bigint  not null,
    holder     text    not null,
    held_until bigint  not null
);

-- The projection. seq is the last event that changed the row; in sessions, the last one that changed anything of
-- the session, and so what a repeated event is known by.
create table sessions (
    tenant     text   not null,
    session_id text   not null,
    seq        bigint not null,
    agent      text   not null,
    metadata   text   not null, -- JSON, or empty
    created    bigint not null,
    updated    bigint not null,
    primary key (tenant, session_id)
);

create table runs (
    tenant              text    not null,
    session_id          text    not null,
    run_id              text    not null,
    seq                 bigint  not null,
    trace_id            text    not null,
    agent               text    not null,
    parent_run_id       text    not null,
    parent_call_id      text    not null,
    status              text    not null,
    created             bigint  not null,
    started             bigint  not null,
    ended               bigint  not null,
    finish_reason       text    not null,
    output_message_id   text    not null,
    error_code          text    not null,
    error_message       text    not null,
    retryable           integer not null,
    cancelled_by        text    not null,
    reason              text    not null,
    input_tokens        bigint  not null,
    output_tokens       bigint  not null,
    reasoning_tokens    bigint  not null,
    cached_input_tokens bigint  not null,
    steps               bigint  not null,
    tool_calls          bigint  not null,
    cost_usd            double precision not null,
    primary key (tenant, session_id, run_id)
);
create index runs_by_id on runs (tenant, run_id);
create index runs_by_age on runs (tenant, created, run_id, session_id);
create index runs_by_trace on runs (tenant, trace_id, created);
create index runs_by_status on runs (tenant, status, created);
create index runs_by_agent on runs (tenant, agent, created);

create table tool_calls (
    tenant      text    not null,
    session_id  text    not null,
    call_id     text    not null,
    seq         bigint  not null,
    opened      bigint  not null, -- seq of the call's first event
    run_id      text    not null,
    message_id  text    not null,
    name        text    not null,
    executor    text    not null,
    status      text    not null,
    attempt     bigint  not null,
    code        text    not null,
    message     text    not null,
    outcome     text    not null,
    artifact_id text    not null,
    truncated   integer not null,
    internal    integer not null,
    created     bigint  not null,
    started     bigint  not null,
    ended       bigint  not null,
    primary key (tenant, session_id, call_id)
);
create index tool_calls_of_run on tool_calls (tenant, run_id, opened);
create index tool_calls_by_name on tool_calls (tenant, name, run_id);

create table artifacts (
    tenant      text    not null,
    session_id  text    not null,
    artifact_id text    not null,
    seq         bigint  not null,
    opened      bigint  not null,
    run_id      text    not null,
    call_id     text    not null,
    name        text    not null,
    media_type  text    not null,
    bytes       bigint  not null,
    sha256      text    not null,
    url         text    not null,
    status      text    not null,
    internal    integer not null,
    created     bigint  not null,
    ended       bigint  not null,
    primary key (tenant, session_id, artifact_id)
);
create index artifacts_by_id on artifacts (tenant, artifact_id);
