// @a2a-js/sdk against POST /a2a/{agent}: A2A 1.0.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TaskState } from '@a2a-js/sdk'
import { everyCut } from '../lib/cuts.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { command, drainEdge, edges, fresh, runState, scenarios, startEdge } from '../lib/stage.mjs'
import { clientOf, follow, message, Seen, stands } from './clients.mjs'

const waiting = ['client-tool', 'approval', 'cancel']
const states = { 'run.completed': 'TASK_STATE_COMPLETED', 'run.failed': 'TASK_STATE_FAILED', 'run.cancelled': 'TASK_STATE_CANCELED' }
const answers = { text: ['Hello, world.'], tools: ['Let me look.', 'Sunny, and you are free.'], takeover: ['One. Two.'], discarded: ['Here it is.'], 'tool-fails': ['That did not work.'] }

// The run begins when the client has its task, and ends when the client follows
// its last stream.
const holding = (agent, last) => async (seen, stream) => {
  const go = () => command({ kind: 'steer', agent, session_id: seen.context, run_id: seen.id })
  if (stream === 0) await go()
  if (stream === last) await go()
}

for (const { name, ends } of scenarios.filter((s) => !waiting.includes(s.name))) {
  test(`${name}: cut after messages, subscribed again in mid-run on another edge`, async () => {
    const agent = name + '-held'
    const once = async (url, n) => {
      const seen = await follow(await clientOf(url, agent), message(), { onFirst: holding(agent, n ? 1 : 0) })
      assert.equal(seen.again, n ? true : undefined, 'the task comes first again')
      const task = new Seen()
      task.task(await (await clientOf(edges[1], agent)).getTask({ id: seen.id, tenant: '' }))
      assert.deepEqual(seen.end, task.end, 'what was streamed is what the task is')
      return seen.end
    }
    const all = ['text', 'tools', 'takeover', 'failure'].includes(name)
    const { state } = await everyCut(once, { only: (k) => all || k % 3 === 1 })
    assert.equal(state.state, states[ends])
    if (answers[name]) assert.deepEqual(Object.values(state.artifacts), answers[name])
    if (ends === 'run.failed') assert.match(state.says, /overloaded|limit of 1 steps/)
  })
}

test('the control: a client that adds the task to what it has is wrong at every cut', async () => {
  class Adding extends Seen {
    task(t) {
      const had = this.artifacts
      super.task(t)
      for (const id in had) this.artifacts[id] = had[id] + (this.artifacts[id] ?? '')
    }
  }
  const once = async (url, n) => (await follow(await clientOf(url, 'text-held'), message(), { Fold: Adding, onFirst: holding('text-held', n ? 1 : 0) })).end
  const proxy = await Proxy.start()
  const want = await once(proxy.url, 0)
  await proxy.stop()
  let wrong = 0
  const cuts = [3, 4, 5, 6]
  for (const after of cuts) {
    const p = await Proxy.start({ after })
    try {
      assert.deepEqual(await once(p.url, after), want)
    } catch {
      wrong++
    }
    await p.stop()
  }
  assert.equal(wrong, cuts.length)
})

test('the same message again is the same task, from its start, on any edge', async () => {
  for (const name of ['tools', 'failure', 'unicode', 'large-result']) {
    const params = message()
    const once = async (url) => (await follow(await clientOf(url, name), params, { again: true }))
    const [a, b] = await Promise.all([once(edges[0]), once(edges[1])])
    assert.equal(a.id, b.id)
    assert.deepEqual(a.end, b.end)
    const sent = await (await clientOf(edges[1], name)).sendMessage(params)
    assert.equal(sent.id, a.id)
    const other = { message: { ...params.message, parts: message('something else').message.parts } }
    await assert.rejects((await clientOf(edges[0], name)).sendMessage(other), /messageId was used before/)
  }
})

test('an approval: input is required; the answer is given once, however its stream is cut', async () => {
  // The run ends only when the client follows its last stream.
  const go = (seen) => command({ kind: 'steer', agent: 'approval-held', session_id: seen.context, run_id: seen.id })
  const answered = async ({ after, again }) => {
    const proxy = await Proxy.start({ after })
    const asked = await follow(await clientOf(edges[0], 'approval-held'), message(), { onFirst: go })
    assert.equal(asked.state, TaskState.TASK_STATE_INPUT_REQUIRED)
    assert.match(asked.says, /approval of send\(\{"to":"bob"\}\).*approval of pay/)
    const answer = message('approve', { taskId: asked.id, contextId: asked.context })
    const seen = await follow(await clientOf(proxy.url, 'approval-held'), answer, { again, onFirst: (s, n) => n === (after ? 1 : 0) && go(s) })
    const repeated = await (await clientOf(edges[0], 'approval-held')).sendMessage(answer)
    assert.equal(stands(repeated), 'TASK_STATE_COMPLETED', 'the answer repeated is no second one')
    await assert.rejects((await clientOf(edges[0], 'approval-held')).sendMessage(message('deny', { taskId: asked.id })), { name: 'UnsupportedOperationError' })
    assert.equal(proxy.cuts, after ? 1 : 0)
    await proxy.stop()
    return seen.end
  }
  const want = await answered({})
  assert.equal(want.state, 'TASK_STATE_COMPLETED')
  assert.deepEqual(await answered({ after: 1 }), want)
  assert.deepEqual(await answered({ after: 1, again: true }), want)
})

test('a decision by data binds to its call; half an answer is refused, and changes nothing', async () => {
  const client = await clientOf(edges[0], 'approval')
  const task = await client.sendMessage(message())
  assert.equal(stands(task), 'TASK_STATE_INPUT_REQUIRED')
  const [words, ...calls] = task.status.message.parts
  assert.match(words.content.value, /approve, or deny and why/)
  const ids = calls.map((p) => p.content.value.call_id)
  assert.equal(ids.length, 2)
  const answer = (...data) => client.sendMessage(message(data, { taskId: task.id }))
  await assert.rejects(answer({ call_id: ids[0], decision: 'approve' }), (e) => e.envelopeCode === -32602 && e.message.includes(ids[1]))
  await assert.rejects(answer({ call_id: 'nothing', decision: 'approve' }), /does not wait for the call/)
  await assert.rejects(answer('perhaps'), /begin with approve or deny/)
  assert.equal(stands(await client.getTask({ id: task.id, tenant: '' })), 'TASK_STATE_INPUT_REQUIRED')
  const done = await answer({ call_id: ids[0], decision: 'approve' }, { call_id: ids[1], decision: 'deny', reason: 'too much' })
  assert.equal(stands(done), 'TASK_STATE_COMPLETED')
})

test('a tool of the client\'s: a text is its result', async () => {
  const client = await clientOf(edges[0], 'client-tool')
  const task = await client.sendMessage(message())
  assert.match(task.status.message.parts[0].content.value, /result of pick_date\(\{"title":"When\?"\}\)/)
  const done = await client.sendMessage(message('2026-05-01', { taskId: task.id }))
  assert.equal(stands(done), 'TASK_STATE_COMPLETED')
  assert.equal(done.contextId, task.contextId)
  assert.equal(done.artifacts.at(-1).parts[0].content.value, 'May it is.')
  const run = await runState(task.id)
  assert.equal(run.session_id, task.contextId, 'a context is a session, a task is a run')
})

test('cancel: answered after the end, and for good', async () => {
  const client = await clientOf(edges[0], 'cancel')
  const task = await client.sendMessage({ ...message(), configuration: { acceptedOutputModes: [], returnImmediately: true } })
  await runState(task.id, (s) => s.status === 'waiting_tool')
  const watcher = await clientOf(edges[1], 'cancel')
  const watched = (async () => {
    let last
    for await (const e of watcher.resubscribeTask({ id: task.id, tenant: '' })) last = e
    return last
  })()
  assert.equal(stands(await client.cancelTask({ id: task.id, tenant: '' })), 'TASK_STATE_CANCELED')
  assert.equal(stands(await client.cancelTask({ id: task.id, tenant: '' })), 'TASK_STATE_CANCELED')
  const { payload } = await watched
  assert.equal(stands(payload.value), 'TASK_STATE_CANCELED', 'who watches on another edge is told')
  const other = await (await clientOf(edges[0], 'text')).sendMessage(message())
  await assert.rejects((await clientOf(edges[0], 'text')).cancelTask({ id: other.id, tenant: '' }), { name: 'TaskNotCancelableError' })
})

test('errors as the SDK knows them', async () => {
  const client = await clientOf(edges[0], 'text')
  const task = await client.sendMessage(message())
  const named = (name) => (e) => e.name === name && e.message.length > 10
  await assert.rejects(client.getTask({ id: 'nothing', tenant: '' }), named('TaskNotFoundError'))
  await assert.rejects((await clientOf(edges[0], 'tools')).getTask({ id: task.id, tenant: '' }), named('TaskNotFoundError'))
  await assert.rejects(client.resubscribeTask({ id: task.id, tenant: '' }).next(), named('UnsupportedOperationError'))
  await assert.rejects(client.resubscribeTask({ id: 'nothing', tenant: '' }).next(), named('TaskNotFoundError'))
  await assert.rejects(client.sendMessage(message('more', { taskId: task.id })), named('UnsupportedOperationError'))
  await assert.rejects(client.sendMessage(message('more', { taskId: 'nothing' })), named('TaskNotFoundError'))
  await assert.rejects(client.sendMessage(message([])), named('RequestMalformedError'))
  await assert.rejects(async () => client.createTaskPushNotificationConfig({ taskId: task.id, url: 'http://127.0.0.1/' }), named('PushNotificationNotSupportedError'))
  await assert.rejects(client.sendMessage({ ...message(), configuration: { acceptedOutputModes: [], taskPushNotificationConfig: { url: 'http://127.0.0.1/' } } }), named('PushNotificationNotSupportedError'))
  await assert.rejects(clientOf(edges[0], 'nobody'), /404/)
})

test('an edge drained in mid-run breaks the stream off: the client subscribes elsewhere', async () => {
  const edge = await startEdge()
  const moved = await Proxy.start({ to: [edge.url, edges[0]] })
  const seen = await follow(await clientOf(moved.url, 'text-held'), message(), {
    async onFirst(seen, stream) {
      const go = () => command({ kind: 'steer', agent: 'text-held', session_id: seen.context, run_id: seen.id })
      if (stream === 0) {
        await go()
        void drainEdge(edge.id)
      } else await go()
    },
  })
  await moved.stop()
  assert.equal(seen.end.state, 'TASK_STATE_COMPLETED')
  assert.deepEqual(Object.values(seen.end.artifacts), ['Hello, world.'])
})

test('the next message in a context is another task of the same session', async () => {
  const client = await clientOf(edges[0], 'text')
  const contextId = fresh('context')
  const one = await client.sendMessage(message('one', { contextId }))
  const two = await client.sendMessage(message('two', { contextId }))
  assert.equal(one.contextId, contextId)
  assert.equal(two.contextId, contextId)
  assert.notEqual(one.id, two.id)
  assert.deepEqual(two.history.map((m) => m.parts[0].content.value), ['two'])

  const list = (more) => client.listTasks({ tenant: '', contextId, status: 0, pageToken: '', ...more })
  const first = await list({ pageSize: 1 })
  assert.deepEqual(first.tasks.map((t) => t.id), [two.id], 'the newest one first')
  assert.equal(first.totalSize, 2)
  assert.deepEqual(first.tasks[0].artifacts, [])
  const second = await list({ pageSize: 1, pageToken: first.nextPageToken, includeArtifacts: true })
  assert.deepEqual(second.tasks.map((t) => [t.id, t.artifacts[0].parts[0].content.value]), [[one.id, 'Hello, world.']])
  assert.equal(second.nextPageToken, '')
  assert.equal((await list({ status: TaskState.TASK_STATE_WORKING })).totalSize, 0)
  assert.equal((await list({ contextId: 'nothing' })).totalSize, 0)
  await assert.rejects(list({ contextId: '' }), { name: 'UnsupportedOperationError' })
})
