// What a client of POST /rpc is held to: scenarios cut after every line, many
// connections at once, slow readers.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'
import { missing, start } from './clients.mjs'

const rpc = async (url, method, params) => {
  const r = await fetch(url + '/rpc', { method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) })
  assert.equal(r.status, 200)
  return r.json()
}

// settle gives a parked scenario what it waits for, by the protocol itself.
const settle = {
  cancel: (run) => rpc(edges[1], 'agent.cancel', { run_id: run, reason: 'enough', wait: true }),
  async approval(run) {
    await rpc(edges[1], 'agent.approve', { run_id: run, call_id: run + '_call_1' })
    const late = await rpc(edges[0], 'agent.approve', { run_id: run, call_id: run + '_call_2' })
    assert.equal(late.error.code, -32009, 'it was denied')
  },
  'client-tool': (run) => rpc(edges[1], 'agent.tool_result', { run_id: run, call_id: run + '_call_1', content: '2026-05-01' }),
}

const ends = { 'run.completed': /^completed$/, 'run.failed': /^error -32000 ./, 'run.cancelled': /^cancelled$/ }

// A client that comes back one event too early.
const tooEarly = (ask) => {
  const call = JSON.parse(ask.body)
  if (!call.params?.after) return false
  const [, session, seq] = /^(.*-)(\d+)/.exec(call.params.after)
  call.params.after = session + (seq - 1)
  ask.body = Buffer.from(JSON.stringify(call))
  ask.headers['content-length'] = String(ask.body.length)
  return true
}

export function suite(name, { played, sentences, controls }) {
  describe(name, { skip: missing(name) }, () => {
    let client
    before(() => { client = start(name) })
    after(() => client.stop())

    for (const sc of scenarios.filter((sc) => played(sc.name))) {
      for (const aggregate of sentences.includes(sc.name) ? ['token', 'sentence'] : ['token']) {
        test(`${sc.name} by ${aggregate}: cut after every line`, async () => {
          const run = fresh('run')
          const params = { agent: sc.name, session_id: fresh('ses'), run_id: run, input_text: 'go', config: { aggregate } }
          if (settle[sc.name]) {
            const first = client.run({ urls: [edges[0]], params })
            await runState(run, (s) => /^waiting/.test(s.status))
            await settle[sc.name](run)
            await first
          }
          const once = (url) => client.run({ urls: [url], params })
          const { state, messages, cuts } = await everyCut(once)
          assert.equal(cuts, messages - 1)
          assert.match(String(state.end), ends[sc.ends])
          assert.equal(state.bad, 0, 'every line has event_id, trace_id, session_id and created_at')
          assert.equal(new Set(state.ids).size, state.ids.length, 'no line came twice')
          assert.equal(state.types[0], 'session_started')
          assert.equal(state.types.at(-1), 'session_finished')
          assert.equal(state.types.includes('error'), sc.ends === 'run.failed')
          for (const [id, text] of Object.entries(state.whole)) assert.equal(state.deltas[id] ?? '', text)
          if (!controls.includes(sc.name) || aggregate === 'sentence') return
          const control = await offByOne(once, { tamper: tooEarly, only: (k) => k % 3 === 0 })
          assert.equal(control.wrong, control.early, 'one line too early is noticed')
        })
      }
    }

    test('cut while it is being written, in pieces of any size, by resets', async () => {
      for (const scenario of ['tools', 'takeover']) {
        const { state } = await everyCut(async (url) => {
          const params = { agent: scenario + '-live', session_id: fresh('ses'), run_id: fresh('run'), input_text: 'go' }
          const s = await client.run({ urls: [url], params })
          return JSON.parse(JSON.stringify(s).replaceAll(params.session_id, 'S').replaceAll(params.run_id, 'R'))
        }, { only: (k) => k % 7 === 0, shred: 5, reset: scenario === 'tools' })
        assert.equal(state.end, 'completed')
      }
    })

    test('one connection per thread, some of them slow', async () => {
      const run = fresh('run')
      const params = { agent: 'tools-live', session_id: fresh('ses'), run_id: run, input_text: 'go', trace_id: fresh('trace') }
      const states = await Promise.all(Array.from({ length: 24 }, (_, i) => client.run({ urls: [edges[i % 2]], params, slow: i % 6 ? 0 : 10 })))
      for (const s of states) assert.deepEqual(s, states[0])
      assert.equal(states[0].end, 'completed')
    })

    test('an edge drained in mid-run breaks the stream off: the client goes on elsewhere', async () => {
      const edge = await startEdge()
      const run = fresh('run')
      const params = { agent: 'cancel', session_id: fresh('ses'), run_id: run, input_text: 'go' }
      const state = client.run({ urls: [edge.url, edges[0]], params })
      await runState(run, (s) => s.status === 'waiting_tool')
      await drainEdge(edge.id)
      await settle.cancel(run)
      assert.equal((await state).end, 'cancelled')
    })

    test('a second invoke with the trace of a live run is told which one it is', async () => {
      const [run, trace] = [fresh('run'), fresh('trace')]
      const first = client.run({ urls: [edges[0]], params: { agent: 'cancel', session_id: fresh('ses'), run_id: run, trace_id: trace, input_text: 'go' } })
      await runState(run, (s) => s.status === 'waiting_tool')
      const second = await client.run({ urls: [edges[1]], params: { agent: 'cancel', input_text: 'go', trace_id: trace } })
      assert.deepEqual(second.types, ['error'])
      assert.match(second.end, new RegExp(`^error -32009 the run ${run} of this trace is under way`))
      await settle.cancel(run)
      assert.equal((await first).end, 'cancelled')
    })
  })
}
