// The edge as a CopilotKit runtime: @copilotkit/core runs, reloads, stops.
import { careless } from '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut } from '../lib/cuts.mjs'
import { command, edges, fresh, runState, scenarios } from '../lib/stage.mjs'
import { page, reload, seen } from './core.mjs'

const [A, B] = edges
const hello = { id: 'u1', role: 'user', content: 'go' }

// start runs the agent to the end of its stream and returns the page.
async function start(url, name, threadId, runId, o) {
  const p = await page(url, name, threadId, o)
  p.agent.addMessage(hello)
  await p.core.runAgent({ agent: p.agent, runId })
  return p
}

const texts = (s) => s.messages.map((m) => [m.role, m.content ?? ''])

for (const { name } of scenarios) {
  if (name === 'cancel') continue
  test(`${name}: a page that is loaded later, on another edge, shows the same`, async () => {
    const threadId = fresh('thread')
    const first = await start(A, name, threadId, fresh('run'))
    assert.deepEqual(first.errors.filter((e) => !/^(RUN_ERROR|agent_run_error_event)/.test(e)), [])
    assert.equal(first.errors.some((e) => e.startsWith('RUN_ERROR')), ['failure', 'budget'].includes(name))
    const later = await reload(B, name, threadId)
    assert.deepEqual(seen(later.agent), seen(first.agent))

    if (name === 'approval') return // before it is answered the client does not connect again
    // Connecting once more does not say it all again.
    const types = later.types.length
    await later.core.connectAgent({ agent: later.agent })
    assert.equal(later.types[types], 'RUN_STARTED')
    assert.deepEqual(texts(seen(later.agent)).filter(([r]) => r !== 'reasoning'), texts(seen(first.agent)).filter(([r]) => r !== 'reasoning'))
    assert.deepEqual(seen(later.agent).state, seen(first.agent).state)
  })
}

test('cut in the middle of a run, read on after a reload', () => careless(async () => {
  for (const name of ['tools', 'reasoning', 'takeover', 'state', 'large-result']) {
    await everyCut(async (url, n) => {
      const [threadId, runId] = [fresh('thread'), fresh('run')]
      const p = await start(url, name + '-live', threadId, runId)
      if (n === 0) return seen(p.agent, runId)
      assert(p.errors.length > 0, 'the page has noticed that its stream broke off')
      const again = await reload(url, name + '-live', threadId)
      return seen(again.agent, runId)
    }, { only: (k) => k % 3 === 1 })
  }
}))

test('cut while a thread is read', () => careless(async () => {
  for (const name of ['tools', 'discarded', 'unicode', 'activity']) {
    const threadId = fresh('thread')
    await start(A, name, threadId, fresh('run'))
    await everyCut(async (url) => seen((await reload(url, name, threadId)).agent))
  }
}))

test('a page that is loaded while a run is under way follows it to its end', async () => {
  const [threadId, runId] = [fresh('thread'), fresh('run')]
  const p = await page(A, 'cancel', threadId)
  p.agent.addMessage(hello)
  const running = p.core.runAgent({ agent: p.agent, runId })
  await runState(runId, (s) => s.status === 'waiting_tool')
  const other = await page(B, 'cancel', threadId)
  const following = other.core.connectAgent({ agent: other.agent })
  while (!other.types.includes('TOOL_CALL_END')) await new Promise((ok) => setTimeout(ok, 2))
  await command({ kind: 'cancel', session_id: threadId, run_id: runId })
  await Promise.all([running, following])
  assert.deepEqual(seen(other.agent), seen(p.agent))
  assert.equal(other.types.at(-1), 'RUN_FINISHED')
})

test('a thread of several runs, one of them failed', async () => {
  const threadId = fresh('thread')
  const first = await start(A, 'text', threadId, fresh('run'))
  first.agent.addMessage({ id: 'u2', role: 'user', content: 'more' })
  const failing = await page(A, 'failure', threadId)
  failing.agent.setMessages(first.agent.messages)
  await failing.core.runAgent({ agent: failing.agent, runId: fresh('run') })
  failing.agent.addMessage({ id: 'u3', role: 'user', content: 'again' })
  const third = await page(B, 'text', threadId)
  third.agent.setMessages(failing.agent.messages)
  await third.core.runAgent({ agent: third.agent, runId: fresh('run') })
  const later = await reload(B, 'text', threadId)
  const spoken = (a) => texts(seen(a)).filter(([r]) => r !== 'reasoning')
  assert.deepEqual(spoken(later.agent), spoken(third.agent))
  assert.deepEqual(spoken(later.agent).map(([, t]) => t), ['go', 'Hello, world.', 'more', 'again', 'Hello, world.'])
  assert.deepEqual(later.types.filter((t) => /^RUN/.test(t)), ['RUN_STARTED', 'RUN_FINISHED', 'RUN_STARTED', 'RUN_ERROR', 'RUN_STARTED', 'RUN_FINISHED'])
})

for (const transport of ['rest', 'single']) {
  test(`${transport}: stop`, async () => {
    const [threadId, runId] = [fresh('thread'), fresh('run')]
    const p = await page(A, 'cancel', threadId, { transport })
    p.agent.addMessage(hello)
    const running = p.core.runAgent({ agent: p.agent, runId })
    await runState(runId, (s) => s.status === 'waiting_tool')
    p.core.stopAgent({ agent: p.agent })
    await running
    assert.equal((await runState(runId)).status, 'cancelled')
    const later = await reload(B, 'cancel', threadId, { transport })
    assert.equal(later.agent.messages.find((m) => m.role === 'tool').content, 'cancelled while it ran')
  })

  test(`${transport}: tools of the page`, async () => {
    const [threadId, runId] = [fresh('thread'), fresh('run')]
    const asked = []
    const p = await start(A, 'client-tool', threadId, runId, {
      transport,
      tools: [{ name: 'pick_date', description: 'asks', handler: async (args) => (asked.push(args), '2026-05-01') }],
    })
    assert.deepEqual(asked, [{ title: 'When?' }])
    assert.deepEqual(p.agent.messages.map((m) => m.role), ['user', 'assistant', 'tool', 'assistant'])
    assert.equal(p.agent.messages.at(-1).content, 'May it is.')
    assert.equal((await runState(runId)).status, 'completed')
    const later = await reload(B, 'client-tool', threadId, { transport })
    assert.deepEqual(texts(seen(later.agent)), texts(seen(p.agent)))
  })

  test(`${transport}: approvals`, async () => {
    const [threadId, runId] = [fresh('thread'), fresh('run')]
    await start(A, 'approval', threadId, runId, { transport })
    const later = await reload(B, 'approval', threadId, { transport })
    const resume = later.agent.pendingInterrupts.map((i, n) => ({ interruptId: i.id, status: n ? 'cancelled' : 'resolved' }))
    assert.equal(resume.length, 2)
    await later.core.runAgent({ agent: later.agent, resume, runId: fresh('run') })
    assert.equal(later.agent.messages.at(-1).content, 'Sent, but not paid.')
    assert.deepEqual(later.agent.messages.filter((m) => m.role === 'tool').map((m) => m.content), ['denied by client: too much', 'sent'])
    assert.equal((await runState(runId)).status, 'completed')
  })

  test(`${transport}: an unknown thread is empty`, async () => {
    const p = await page(A, 'text', fresh('thread'), { transport })
    await p.core.connectAgent({ agent: p.agent })
    assert.deepEqual([p.agent.messages, p.errors], [[], []])
  })
}

test('routes', async () => {
  const post = (path, body) => fetch(A + '/copilotkit' + path, { method: 'POST', body: JSON.stringify(body) })
  for (const [path, body, status, what] of [
    ['', { method: 'agent/dance' }, 400, /known: info/],
    ['/agent/text/connect', { messages: [] }, 400, /threadId/],
    ['/agent/text/stop/' + fresh('thread'), {}, 404, /session/],
    ['/agent/nobody/run', { threadId: fresh('thread'), runId: fresh('run'), messages: [hello] }, 404, /nobody/],
  ]) {
    const r = await post(path, body)
    assert.equal(r.status, status, path)
    assert.match((await r.json()).detail, what)
  }
  const threadId = fresh('thread')
  await start(A, 'text', threadId, fresh('run'))
  assert.deepEqual(await (await post('/agent/text/stop/' + threadId, {})).json(), { stopped: false })
})
