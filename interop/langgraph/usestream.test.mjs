// useStream of @langchain/langgraph-sdk/react: a chat that streams, comes back
// after a reload, answers an interrupt, and runs tools of its own.
import '../lib/quiet.mjs'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createElement } from 'react'
import { act, create } from 'react-test-renderer'
import { useStream } from '@langchain/langgraph-sdk/react'
import { edges, fresh, runState } from '../lib/stage.mjs'
import { Proxy } from '../lib/proxy.mjs'

globalThis.IS_REACT_ACT_ENVIRONMENT = true
globalThis.window = {} // what the hook takes for a browser
const wait = globalThis.setTimeout
globalThis.setTimeout = (fn, ms, ...args) => wait(fn, ms >= 500 && ms < 6000 ? ms / 100 : ms, ...args)

class Storage {
  #kept = new Map()
  getItem = (k) => this.#kept.get(k) ?? null
  setItem = (k, v) => void this.#kept.set(k, v)
  removeItem = (k) => void this.#kept.delete(k)
}

/** Renders a component that does nothing but use the hook. */
async function mount(options) {
  let now
  const App = () => {
    now = useStream({ apiKey: null, fetchStateHistory: false, ...options })
    void now.messages // what is looked at is asked for
    void now.toolProgress
    return null
  }
  let page
  await act(async () => { page = create(createElement(App)) })
  return {
    get stream() { return now },
    until: async (wanted, what) => {
      for (const end = Date.now() + 20_000; !wanted(now);) {
        assert(Date.now() < end, `${what ?? wanted}: ${JSON.stringify({ loading: now.isLoading, error: String(now.error), values: now.values, interrupt: now.interrupt })}`)
        await act(async () => { await new Promise((ok) => wait(ok, 5)) })
      }
    },
    close: () => act(async () => page.unmount()),
  }
}

const texts = (s) => s.messages.map((m) => [m.type, m.content])
const say = (page) => act(async () => { page.stream.submit({ messages: [{ type: 'human', content: 'go' }] }) })

test('streams, and its thread is there afterwards', async () => {
  let thread
  const page = await mount({ apiUrl: edges[0] + '/langgraph', assistantId: 'tools-live', onThreadId: (id) => { thread = id } })
  await say(page)
  await page.until((s) => !s.isLoading && s.messages.length > 1)
  assert.equal(page.stream.error, undefined)
  assert.deepEqual(texts(page.stream).map(([type]) => type), ['human', 'ai', 'tool', 'tool', 'ai'])
  assert.equal(page.stream.messages.at(-1).content, 'Sunny, and you are free.')
  assert.deepEqual(page.stream.toolProgress.map((t) => [t.name, t.state]), [['weather', 'completed'], ['calendar', 'completed']])
  const shown = texts(page.stream)
  await page.close()

  const again = await mount({ apiUrl: edges[1] + '/langgraph', assistantId: 'tools-live', threadId: thread })
  await again.until((s) => s.messages.length > 0)
  assert.deepEqual(texts(again.stream), shown)
  await again.close()
})

test('an edge that goes away in mid-run is not noticed', async () => {
  for (const after of [2, 5, 8]) {
    const front = await Proxy.start({ after })
    const page = await mount({ apiUrl: front.url + '/langgraph', assistantId: 'takeover-live', reconnectOnMount: () => new Storage() })
    await say(page)
    await page.until((s) => !s.isLoading && s.messages.length > 1)
    assert.equal(page.stream.error, undefined)
    assert.deepEqual(texts(page.stream).map(([, content]) => content), ['go', 'One. Two.'])
    assert.equal(front.cuts, 1)
    await page.close()
    await front.stop()
  }
})

test('a page that is loaded anew joins the run under way', async () => {
  const storage = new Storage()
  const thread = fresh('thread')
  const options = { assistantId: 'cancel', threadId: thread, reconnectOnMount: () => storage }
  const page = await mount({ apiUrl: edges[0] + '/langgraph', ...options })
  await say(page)
  const key = `lg:stream:${thread}`
  await page.until((s) => s.messages.length === 2 && storage.getItem(key))
  const run = storage.getItem(key)
  await runState(run, (s) => s.status === 'waiting_tool')

  const again = await mount({ apiUrl: edges[1] + '/langgraph', ...options })
  await again.until((s) => s.isLoading && s.messages.at(-1)?.content === 'I begin.')
  await act(async () => { await again.stream.stop() }) // cancels: the run is stored
  assert.equal((await runState(run, (s) => s.status === 'cancelled')).status, 'cancelled')
  await again.until((s) => !s.isLoading)
  await page.until((s) => !s.isLoading)
  assert.match(String(page.stream.error), /cancelled/, 'who only looks on sees that it was cancelled')
  await page.close()
  await again.close()
})

test('a failure is an error, never a short answer', async () => {
  const page = await mount({ apiUrl: edges[0] + '/langgraph', assistantId: 'failure' })
  await say(page)
  await page.until((s) => s.error)
  assert.equal(page.stream.error.name, 'model_error')
  assert.match(page.stream.error.message, /overloaded/)
  await page.close()
})

test('an interrupt is shown, and its answer goes on with the run', async () => {
  const page = await mount({ apiUrl: edges[0] + '/langgraph', assistantId: 'approval', threadId: fresh('thread') })
  await say(page)
  await page.until((s) => !s.isLoading && s.interrupt)
  assert.deepEqual(page.stream.interrupt.value.actionRequests.map((a) => [a.name, a.args]), [['send', { to: 'bob' }], ['pay', { amount: 3 }]])
  await act(async () => { page.stream.submit(null, { command: { resume: { decisions: [{ type: 'approve' }, { type: 'reject' }] } } }) })
  await page.until((s) => !s.isLoading && s.messages.at(-1).content === 'Sent, but not paid.')
  assert.equal(page.stream.interrupt, undefined)
  assert.equal(page.stream.error, undefined)
  await page.close()
})

test('tools of the page run by themselves', async () => {
  const asked = []
  const tools = [{ tool: { name: 'pick_date' }, execute: async (args) => { asked.push(args); return '2026-05-01' } }]
  const page = await mount({ apiUrl: edges[0] + '/langgraph', assistantId: 'client-tool', threadId: fresh('thread'), tools })
  await say(page)
  await page.until((s) => !s.isLoading && s.messages.at(-1)?.content === 'May it is.')
  assert.deepEqual(asked, [{ title: 'When?' }])
  assert.deepEqual(texts(page.stream).map(([type]) => type), ['human', 'ai', 'tool', 'ai'])
  await page.close()
})
