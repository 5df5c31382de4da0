// The agents that stand behind runlog, and what a client sees of them directly.
import { EventType as T } from '@ag-ui/core'
import { answers, calls, says } from './server.mjs'

const pause = (ms) => new Promise((ok) => setTimeout(ok, ms))

/** One of everything: what a run may say. n keeps the ids of turns apart. */
async function story(at) {
  const { emit, input } = at
  const n = input.messages.filter((m) => m.role === 'user').length
  await emit(T.REASONING_START, { messageId: `r${n}` })
  await emit(T.REASONING_MESSAGE_START, { messageId: `r${n}`, role: 'reasoning' })
  await emit(T.REASONING_MESSAGE_CONTENT, { messageId: `r${n}`, delta: 'They greet me.' })
  await emit(T.REASONING_MESSAGE_END, { messageId: `r${n}` })
  await emit(T.REASONING_END, { messageId: `r${n}` })
  await emit(T.STEP_STARTED, { stepName: 'look' })
  await emit(T.STATE_SNAPSHOT, { snapshot: { ...input.state, found: [], turns: (input.state?.turns ?? 0) + 1 } })
  await says(at, `m${n}-1`, 'I look ', 'it up. 🌤')
  await calls(at, `c${n}-1`, 'search', ['{"q":', '"mars"}'], `m${n}-1`)
  await calls(at, `c${n}-2`, 'fetch', ['{}'], `m${n}-1`)
  await answers(at, `c${n}-2`, 'nothing')
  await answers(at, `c${n}-1`, 'a planet')
  await emit(T.STATE_DELTA, { delta: [{ op: 'add', path: '/found/-', value: 'mars' }] })
  await calls(at, `c${n}-3`, 'alone', ['{"n":1}'])
  await answers(at, `c${n}-3`, 'done')
  await emit(T.ACTIVITY_SNAPSHOT, { messageId: `a${n}`, activityType: 'plan', content: { steps: [] } })
  await emit(T.ACTIVITY_DELTA, { messageId: `a${n}`, activityType: 'plan', patch: [{ op: 'add', path: '/steps/-', value: 'look' }] })
  await emit(T.CUSTOM, { name: 'mood', value: { good: true } })
  await emit(T.STEP_FINISHED, { stepName: 'look' })
  await says(at, `m${n}-2`, 'Mars ', 'is a ', 'planet.')
  return { usage: [{ inputTokens: 12, outputTokens: 7 }] }
}

const slowly = (at, ms) => ({
  ...at,
  emit: async (...e) => {
    await pause(ms)
    await at.emit(...e)
  },
})

export const agents = {
  story,
  slow: (at) => story(slowly(at, 60)),
  // Breaks off after ever more events, and is whole the fourth time.
  fragile: (at) => {
    if (at.times > 3) return story(at)
    let left = at.times * 7
    return story({ ...at, emit: async (...e) => (left-- > 0 ? at.emit(...e) : void at.res.destroy()) })
  },
  async empty() {},
  async failing(at) {
    await says(at, 'm1', 'I will ')
    await at.emit(T.RUN_ERROR, { message: 'no luck', code: 'E7' })
    return { type: T.RUN_ERROR }
  },
  async endless(at) {
    for (let i = 0; at.alive(); i++) {
      await says(at, `m${i}`, 'still here')
      await pause(20)
    }
  },
  // Asks before it pays, and how much.
  async buyer(at) {
    if (!at.input.resume) {
      await says(at, 'ask', 'May I?')
      await calls(at, 'pay', 'pay', ['{"eur":5}'], 'ask')
      return { outcome: { type: 'interrupt', interrupts: [{ id: 'i1', reason: 'tool_call', toolCallId: 'pay', message: 'Pay 5?' }] } }
    }
    const { status, payload } = at.input.resume.find((r) => r.interruptId === 'i1')
    const yes = status === 'resolved' && payload?.approved !== false
    if (yes) await answers(at, 'pay', 'paid')
    await says(at, 'said', yes ? 'Paid.' : 'Not paid.')
  },
  async asker(at) {
    if (!at.input.resume) {
      await says(at, 'q', 'One question.')
      return { outcome: { type: 'interrupt', interrupts: [{ id: 'how-many', reason: 'input_required', message: 'How many?' }] } }
    }
    await says(at, 'a', `So ${JSON.stringify(at.input.resume[0].payload)}.`)
  },
  // Has the client's tool called.
  async guide(at) {
    const last = at.input.messages.at(-1)
    if (last.role !== 'tool') return calls(at, 'where', 'locate', ['{}'])
    await says(at, 'there', `You are in ${last.content}.`)
  },
}
