// An app with @a2a-js/sdk: it folds what a task streams, and where a stream breaks
// off it subscribes again, which gives it the task as it is and what follows.
import assert from 'node:assert/strict'
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client'
import { TaskState } from '@a2a-js/sdk'
import { fresh } from '../lib/stage.mjs'

export const ended = [TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED]
export const stands = (task) => TaskState[task.status.state]

/**
 * The SDK's client of an agent, by its card. The card names the edge, so what goes
 * there is sent by url, which may be a proxy's.
 */
export function clientOf(url, agent) {
  const fetchImpl = (to, init) => {
    const at = new URL(to)
    return fetch(new URL(at.pathname + at.search, url), init)
  }
  return new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
  })).createFromUrl(`${url}/a2a/${agent}/`)
}

export const message = (text = 'go', more = {}) => ({
  message: { messageId: fresh('msg'), contextId: '', taskId: '', role: 1, parts: parts(text), extensions: [], referenceTaskIds: [], ...more },
})

const parts = (list) => [list].flat().map((p) => ({
  content: typeof p === 'string' ? { $case: 'text', value: p } : { $case: 'data', value: p }, filename: '', mediaType: '',
}))

/** What an app knows of a task. */
export class Seen {
  events = 0
  artifacts = {}

  take({ payload: { $case, value } }) {
    this.events++
    if ($case === 'task') return this.task(value)
    this.id = value.taskId
    if ($case === 'statusUpdate') return this.status(value.status)
    const { artifact: a, append } = value
    if (a.metadata?.runlog?.discarded) delete this.artifacts[a.artifactId]
    else this.artifacts[a.artifactId] = (append ? this.artifacts[a.artifactId] : '') + text(a.parts)
  }

  task(t) {
    this.id = t.id
    this.context = t.contextId
    this.artifacts = {}
    for (const a of t.artifacts) this.artifacts[a.artifactId] = text(a.parts)
    this.status(t.status)
  }

  status(s) {
    this.state = s.state
    this.says = s.state === TaskState.TASK_STATE_WORKING ? '' : text(s.message?.parts ?? [])
  }

  get over() {
    return ended.includes(this.state)
  }

  /** Without what differs from run to run. */
  get end() {
    const plain = JSON.stringify({ state: TaskState[this.state], says: this.says, artifacts: Object.fromEntries(Object.entries(this.artifacts).sort()) })
    return JSON.parse(plain.replaceAll(this.id, 'TASK').replaceAll(this.context, 'CONTEXT').replaceAll(/http:\/\/127.0.0.1:\d+/g, 'HOST'))
  }
}

const text = (parts) => parts.map((p) => {
  const { $case, value } = p.content
  return $case === 'text' ? value : `[${$case === 'data' ? JSON.stringify(value) : value}]`
}).join('')

/**
 * Sends a message and follows its task until it is over, or waits.
 *
 * @param {object} o
 * @param {(seen: Seen, stream: number) => Promise<void>} [o.onFirst] called at the first event of each stream
 * @param {boolean} [o.again] ask by the same message again, instead of subscribing
 */
export async function follow(client, params, { onFirst, again, Fold = Seen } = {}) {
  const seen = new Fold()
  for (let streams = 0, waits = false; !seen.over && !waits; streams++) {
    assert(streams < 50, 'the task has no end')
    const stream = seen.id && !again ? client.resubscribeTask({ id: seen.id, tenant: '' }) : client.sendMessageStream(params)
    let first = true
    try {
      for await (const e of stream) {
        if (first && e.payload.$case === 'task' && streams > 0) seen.again = true
        seen.take(e)
        if (first) await onFirst?.(seen, streams)
        first = false
      }
      waits = seen.state === TaskState.TASK_STATE_INPUT_REQUIRED
    } catch (e) {
      if (e instanceof assert.AssertionError) throw e
      if (e.name === 'UnsupportedOperationError') seen.task(await client.getTask({ id: seen.id, tenant: '' }))
      else if (e.name?.endsWith('Error') && e.envelopeCode) throw e
    }
  }
  return seen
}
