// The plain views of a run, each with a reader of its own, old and new side by side.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { everyCut, offByOne } from '../lib/cuts.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { noPython } from '../lib/python.mjs'
import { command, edges, fresh, runState, scenarios } from '../lib/stage.mjs'
import { agents, anthropic, parts, python } from './readers.mjs'

const post = async (path, body) => {
  const r = await fetch(edges[1] + path, { method: 'POST', body: JSON.stringify(body) })
  assert(r.ok, `${path}: ${r.status} ${await r.clone().text()}`)
  return r.json()
}

// settle gives a run what it waits for.
const settle = {
  cancel: (run) => post(`/v1/runs/${run}/cancel`, { wait: true }),
  approval: (run) => post(`/v1/runs/${run}/approvals/${run}_call_1`, { decision: 'approve' }),
  'client-tool': (run) => post(`/v1/runs/${run}/tools/${run}_call_1`, { content: '2026-05-01' }),
}

/** Plays a scenario to its end; the path of its events. */
async function play(name) {
  const run = fresh('run')
  await post('/v1/runs', { agent: name, run_id: run, input: 'go' })
  const waits = settle[name.replace('-live', '')]
  if (waits) {
    await runState(run, (s) => /^waiting/.test(s.status))
    await waits(run)
  }
  await runState(run)
  return `/v1/runs/${run}/events`
}

const status = { 'run.completed': 'completed', 'run.failed': 'failed', 'run.cancelled': 'cancelled' }
const plain = (state, path) => JSON.stringify(state).replaceAll(path.split('/')[3], 'RUN')

// How each view is cut, and what its reader must know in the end.
const views = {
  v1: {
    check(state, { ends }) {
      assert.equal(state.end, status[ends])
      assert.equal(state.error !== null, ends === 'run.failed')
    },
    hello: (state) => Object.values(state.texts),
  },
  parts: {
    check(state, { ends }) {
      assert.equal(state.session.status, status[ends])
      assert.equal(state.session.error !== undefined, ends === 'run.failed')
      assert.equal(new Set(state.commands).size, state.commands.length, 'no command came twice')
    },
    hello: (state) => Object.values(state.messages).filter((m) => m.role === 'assistant' && m.status === 'completed').flatMap((m) => m.parts.map((p) => p.text)),
  },
  // A reader that waits a second before it comes back: its cuts are made at once.
  agents: {
    parallel: 32,
    check(state, { ends }) {
      assert.equal(state[0].type, 'response_start')
      assert.equal(state.at(-1).status, status[ends])
      assert.equal(state.at(-1).error !== undefined, ends === 'run.failed')
    },
    hello: (state) => [state.at(-1).text],
  },
  anthropic: {
    check(state, { ends, name }) {
      assert.equal(state.failed !== undefined, ends === 'run.failed')
      const stops = state.messages.map((m) => m.stop_reason)
      assert.deepEqual(stops, { 'client-tool': ['tool_use', 'end_turn'], cancel: ['pause_turn'] }[name] ?? (ends === 'run.failed' ? [] : ['end_turn']))
    },
    hello: (state) => state.messages.flatMap((m) => m.content.map((b) => b.text)),
  },
}

describe('the plain views', { skip: noPython() }, () => {
  let v1
  before(() => { v1 = python() })
  after(() => v1.stop())
  const readers = { v1: (url, path) => v1.read(url, path), parts, agents, anthropic }

  for (const [name, view] of Object.entries(views)) {
    test(`${name}: every scenario cut after every message, on with it on another edge`, async () => {
      await inTurn(scenarios, view.parallel ?? 2, async (sc) => {
        const path = await play(sc.name)
        if (name === 'v1' && sc.name === 'empty') return view.check(await v1.read(edges[0], path), sc) // one message: nothing to cut
        const all = ['text', 'tools', 'takeover', 'failure', 'client-tool'].includes(sc.name)
        const { state } = await everyCut((url) => readers[name](url, path), { parallel: view.parallel, only: (k) => all || k % 3 === 1 })
        view.check(state, sc)
        if (sc.name === 'text') assert.deepEqual(view.hello(state), ['Hello, world.'])
      })
    })

    test(`${name}: the control, a reader that comes back one message too early`, async () => {
      const path = await play(name === 'agents' ? 'tools' : 'text')
      const { wrong, early } = await offByOne((url) => readers[name](url, path), { parallel: view.parallel })
      // After the first message there is none before it; the SDK takes an end of a block twice.
      assert(wrong >= early - (name === 'anthropic' ? 2 : 1), `noticed at ${wrong} of ${early} cuts`)
    })
  }

  test('old and new read one run side by side while it is written, each cut somewhere else', async () => {
    for (const scenario of ['takeover', 'failure']) {
      const run = fresh('run')
      const path = `/v1/runs/${run}/events`
      await post('/v1/runs', { agent: scenario + '-held', run_id: run, input: 'go' })
      const live = Object.entries(readers).flatMap(([name, read]) => [1, 2].map(async (after) => {
        const proxy = await Proxy.start({ after, to: after === 1 ? edges : [...edges].reverse() })
        const state = await read(proxy.url, path)
        assert.equal(proxy.cuts, 1, `${name} was cut`)
        await proxy.stop()
        return [name, state]
      }))
      const { session_id } = await runState(run, (s) => s.session_id)
      for (let i = 0; i < 2; i++) await command({ kind: 'steer', agent: scenario + '-held', session_id, run_id: run })
      for (const [name, state] of await Promise.all(live)) {
        assert.equal(plain(state, path), plain(await readers[name](edges[0], path), path), `${scenario}: ${name} live and later`)
      }
    }
  })

  test('a dialect is named by query, header or Accept; one that is not there is refused with the list', async () => {
    const path = await play('text')
    const ways = (name) => [
      [`?dialect=${name}`, {}], ['', { 'runlog-dialect': name }], ['', { accept: `text/event-stream;dialect=${name}` }],
    ]
    for (const name of Object.keys(views)) {
      const bodies = await Promise.all(ways(name).map(async ([query, headers]) => {
        const r = await fetch(edges[0] + path + query, { headers })
        assert.equal(r.status, 200)
        return (await r.text()).replace(/^retry: .*$/m, '').replaceAll(': ping\n\n', '')
      }))
      assert.equal(new Set(bodies).size, 1, `${name} is the same, however it is asked for`)
    }
    for (const [query, headers] of ways('klingon')) {
      const r = await fetch(edges[0] + path + query, { headers })
      assert.equal(r.status, 400)
      const problem = await r.json()
      assert.equal(problem.code, 'unknown_dialect')
      for (const name of ['native', 'agui', ...Object.keys(views)]) assert(problem.known.includes(name) && problem.detail.includes(name), name)
    }
  })
})

async function inTurn(list, n, fn) {
  const rest = [...list]
  await Promise.all(Array.from({ length: n }, async () => {
    for (let x; (x = rest.shift()); ) await fn(x)
  }))
}
