// Every scenario, cut after every message, by two published versions of the client.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { edges, fresh, runState, scenarios } from '../lib/stage.mjs'
import { clients, hello, run } from './clients.mjs'

for (const [version, HttpAgent] of Object.entries(clients)) {
  for (const { name, ends } of scenarios) {
    test(`${version} ${name}: cut after every message`, async () => {
      const ids = { threadId: fresh('thread'), runId: fresh('run') }
      // The same threadId and runId again is the same run, from its start.
      const once = (url) => run(HttpAgent, url, name, { ...ids, messages: [hello('u1')] })
      if (name === 'cancel') await start(once, ids)
      const { state, messages, cuts } = await everyCut(once)
      assert.equal(cuts, messages - 1)
      check(state, name, ends)
      const control = await offByOne(once, { only: (k) => k % 3 === 0 })
      assert(control.wrong > control.early / 2, `coming back one message too early was noticed at ${control.wrong} of ${control.early} cuts`)
      assert.equal((await native(ids.threadId)).runs.length, name === 'subagent' ? 2 : 1, 'one run, however often it was asked for')
    })
  }

  test(`${version}: cut while it is being written`, async () => {
    for (const name of ['tools', 'takeover', 'discarded', 'reasoning']) {
      await everyCut(async (url, n) => {
        const ids = { threadId: fresh('thread'), runId: fresh('run') }
        const state = await run(HttpAgent, url, name + '-live', { ...ids, messages: [hello('u1')] })
        return JSON.parse(JSON.stringify(state).replaceAll(ids.threadId, 'T').replaceAll(ids.runId, 'R'))
      })
    }
  })

  test(`${version}: any size of reads`, async () => {
    const ids = { threadId: fresh('thread'), runId: fresh('run') }
    const once = (url) => run(HttpAgent, url, 'unicode', { ...ids, messages: [hello('u1')] })
    await everyCut(once, { shred: 3, only: (k) => k % 5 === 0 })
    await everyCut(once, { reset: true, only: (k) => k % 3 === 0 })
  })
}

// start runs the scenario that waits to be cancelled up to there, and cancels it.
async function start(once, { runId }) {
  const running = once(edges[0])
  await runState(runId, (s) => s.status === 'waiting_tool')
  const r = await fetch(`${edges[1]}/v1/runs/${runId}/cancel`, { method: 'POST', body: '{"reason":"enough","wait":true}' })
  assert.equal(r.status, 200, await r.text())
  await running
}

const native = async (session) => (await fetch(`${edges[0]}/v1/sessions/${session}/snapshot`)).json()

// check is what an app must find at the end.
function check(s, name, ends) {
  assert.equal(s.rejected, undefined, s.rejected)
  const last = s.events.at(-1)
  const text = s.messages.filter((m) => m.role === 'assistant').map((m) => m.content).join('|')
  assert.equal(s.messages[0].content, 'go')
  assert.equal(new Set(s.messages.map((m) => m.id)).size, s.messages.length, 'ids of messages are distinct')
  if (ends === 'run.failed') {
    assert.equal(s.errors.length, 1)
    assert.equal(last.type, 'RUN_ERROR')
    return
  }
  assert.equal(s.errors.length, 0)
  assert.equal(last.type, 'RUN_FINISHED')
  const expected = {
    text: 'Hello, world.', empty: '', reasoning: 'Good evening!', tools: 'Let me look.|Sunny, and you are free.',
    'tool-fails': '|That did not work.', state: 'Planned.', takeover: 'One. Two.', discarded: 'Here it is.', 'large-result': '|It is long.',
    'client-tool': '', approval: 'I would like to send this.', cancel: 'I begin.',
  }
  if (name in expected) assert.equal(text, expected[name])
  more[name]?.(s, last)
}

const more = {
  tools(s) {
    const [a, b] = s.messages[1].toolCalls
    assert.equal(a.function.arguments, '{"city":"Köln","id":9007199254740993}')
    assert.equal(b.function.arguments, '{"day":"monday"}')
    assert.equal(s.messages[1].toolCalls.length, 2, 'a hidden call is not seen')
    assert(!JSON.stringify(s).includes('hidden'))
    assert.deepEqual(s.messages.filter((m) => m.role === 'tool').map((m) => m.content), ['nothing on monday', 'sunny\n{"low":5,"high":12}'])
    assert.deepEqual(s.customs, ['tool.progress', 'tool.progress'])
  },
  state(s) {
    assert.deepEqual(s.state, { steps: ['plan', 'do'], done: true })
  },
  activity(s) {
    const a = s.messages.find((m) => m.role === 'activity')
    assert.equal(a.activityType, 'a2ui-surface')
    assert.deepEqual(a.content, { a2ui_operations: [{ version: 'v0.9', deleteSurface: { surfaceId: 's1' } }] })
  },
  approval(s, last) {
    assert.equal(last.outcome.type, 'interrupt')
    assert.deepEqual(s.pending.map((i) => i.message), ['Allow send?', 'Allow pay?'])
  },
  cancel(s, last) {
    assert.equal(last.result.status, 'cancelled')
    assert.equal(s.messages.find((m) => m.role === 'tool').content, 'cancelled while it ran')
  },
  'large-result'(s) {
    const t = s.messages.find((m) => m.role === 'tool')
    assert(t.content.length > 100_000)
    assert.equal(t.metadata.runlog.truncated, true)
    assert.match(t.metadata.runlog.artifact.url, /^\/artifacts\//)
  },
  reasoning(s) {
    assert.deepEqual(s.messages.filter((m) => m.role === 'reasoning').map((m) => m.content), ['The user greets me.', 'Morning or evening?'])
  },
  takeover(s) {
    assert.deepEqual(s.messages.filter((m) => m.role === 'reasoning' && m.content).map((m) => m.content), ['A list.'])
    assert(!s.messages.some((m) => m.toolCalls?.length), 'a call that was taken back is gone')
  },
  unicode(s) {
    assert.equal(s.messages.find((m) => m.toolCalls).toolCalls[0].function.arguments, '{"a":"\\ud83d\\ude00","b":1e400,"c":"\\u0000","é":-0.0}')
  },
}
