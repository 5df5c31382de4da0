// The two clients under test, and what they know when a run is over.
import { HttpAgent as Current } from '@ag-ui/client'
import { HttpAgent as Old } from '@ag-ui/client-0.0.59'
import { resumingFetch } from './resuming-fetch.mjs'

export const clients = { '1.0.0': Current, '0.0.59': Old }

/** The message that a user sends. */
export const hello = (id, content = 'go') => ({ id, role: 'user', content })

/** Runs an agent once, and returns all that its app can know of the run. */
export async function run(HttpAgent, url, agentName, { threadId, runId, messages, fetch = resumingFetch(), props, tools, resume, agent }) {
  agent ??= new HttpAgent({ url: `${url}/agui/${agentName}`, threadId, initialMessages: messages, fetch })
  const events = []
  const seen = { errors: [], customs: [] }
  const outcome = await agent
    .runAgent({ runId, ...(props && { forwardedProps: props }), ...(tools && { tools }), ...(resume && { resume }) }, {
      onEvent: ({ event }) => void events.push(event),
      onRunErrorEvent: ({ event }) => void seen.errors.push(event),
      onCustomEvent: ({ event }) => void seen.customs.push(event.name),
    })
    .then((r) => ({ resolved: r }), (e) => ({ rejected: String(e) }))
  return JSON.parse(JSON.stringify({
    ...outcome, ...seen, events, messages: agent.messages, state: agent.state, pending: agent.pendingInterrupts ?? [],
  }))
}
