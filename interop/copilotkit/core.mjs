// CopilotKitCore as a page has it; each call is a freshly loaded page.
import assert from 'node:assert/strict'

globalThis.window ??= { location: { origin: 'http://localhost', href: 'http://localhost/' }, addEventListener() {}, removeEventListener() {} }
const { CopilotKitCore } = await import('@copilotkit/core')

/** A page: its core, and the agent of that name in a thread. */
export async function page(url, name, threadId, { transport = 'rest', tools = [] } = {}) {
  const errors = []
  const core = new CopilotKitCore({ runtimeUrl: url + '/copilotkit', runtimeTransport: transport })
  const connected = new Promise((ok) => {
    core.subscribe({
      onError: (e) => void errors.push(`${e.code}: ${e.error?.message}`),
      onRuntimeConnectionStatusChanged: ({ status }) => void (status !== 'connecting' && ok(status)),
    })
  })
  if (core.runtimeConnectionStatus !== 'connected') assert.equal(await connected, 'connected')
  for (const t of tools) core.addTool(t)
  const agent = core.getAgent(name)
  assert(agent, `the runtime does not know ${name}`)
  agent.threadId = threadId
  const types = []
  agent.subscribe({ onEvent: ({ event }) => void types.push(event.type), onRunErrorEvent: ({ event }) => void errors.push('RUN_ERROR: ' + event.message) })
  return { core, agent, errors, types }
}

/** What a user sees: messages without what only one way of reading has. */
export const seen = (agent, runId) =>
  JSON.parse(JSON.stringify({ messages: agent.messages, state: agent.state }).replaceAll(runId ?? '\0', 'R'))

/** Loads pages until one has read the thread to its end. */
export async function reload(url, name, threadId, o) {
  for (let tries = 0; tries < 5; tries++) {
    const p = await page(url, name, threadId, o)
    await p.core.connectAgent({ agent: p.agent })
    if (!p.errors.some((e) => e.startsWith('agent_connect_failed'))) return p
  }
  assert.fail('the thread could not be read')
}
