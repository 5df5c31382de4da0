// A chat as an app has it, and how it comes back after its connection broke.
import { Chat } from '@ai-sdk/react'
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from 'ai'
import { fresh } from '../lib/stage.mjs'

/** The tools that the chats run themselves. */
export const tools = [{ name: 'pick_date', description: 'asks', parameters: { type: 'object' } }]

/** A chat with an agent; at() is the edge it speaks to at the moment. onRun is told of the run that answers. */
export function newChat(at, agent, options = {}) {
  const { body, onRun, ...rest } = options
  const chat = new Chat({
    id: fresh('chat'),
    transport: new DefaultChatTransport({
      body: { agent, tools, ...body },
      fetch: async (path, init) => {
        const r = await fetch(at() + path, init)
        onRun?.(r.headers.get('runlog-run-id'))
        return r
      },
    }),
    sendAutomaticallyWhen: (o) =>
      lastAssistantMessageIsCompleteWithToolCalls(o) || lastAssistantMessageIsCompleteWithApprovalResponses(o),
    ...rest,
  })
  return chat
}

/** Does something that streams; as long as the connection breaks off, resumes. */
export async function resuming(chat, fn) {
  await fn()
  for (let tries = 0; chat.status === 'error' && /terminated|fetch failed|socket|network/i.test(String(chat.error)); tries++) {
    if (tries > 5) throw chat.error
    await chat.resumeStream()
  }
}

/** Everything that the app shows, with the ids that differ from run to run named alike. */
export function stateOf(chat) {
  const run = chat.messages.findLast((m) => m.role === 'assistant')?.id
  const text = JSON.stringify({ messages: chat.messages.slice(1), status: chat.status, error: chat.error && String(chat.error) })
  return JSON.parse(text.replaceAll(chat.id, 'CHAT').replaceAll(run ?? '\0', 'RUN').replace(/"trace_id":"\w+"/g, '"trace_id":"T"'))
}
