// An AG-UI server out of the published packages: @ag-ui/core says what an event is,
// @ag-ui/encoder writes it. Its agents are functions; the path names them.
import { createServer } from 'node:http'
import { once } from 'node:events'
import { EventType as T } from '@ag-ui/core'
import { EventSchemas, RunAgentInputSchema } from '@ag-ui/core/schemas'
import { EventEncoder } from '@ag-ui/encoder'

/** Starts it. `inputs` are the requests it got, by agent; `closed` counts streams that the other side closed. */
export async function startServer(agents) {
  const inputs = {}
  const server = { inputs, closed: 0 }
  const http = createServer(async (req, res) => {
    let body = ''
    for await (const chunk of req.setEncoding('utf8')) body += chunk
    const name = req.url.slice(1)
    const input = RunAgentInputSchema.parse(JSON.parse(body))
    const times = (inputs[name] ??= []).push(input)
    const encoder = new EventEncoder({ accept: req.headers.accept })
    res.writeHead(200, { 'content-type': encoder.getContentType(), 'cache-control': 'no-cache' })
    const emit = async (type, data) => {
      if (!res.write(encoder.encodeSSE(EventSchemas.parse({ type, ...data })))) await once(res, 'drain')
    }
    res.on('close', () => res.writableFinished || server.closed++)
    const ids = { threadId: input.threadId, runId: input.runId }
    await emit(T.RUN_STARTED, ids)
    const end = await agents[name]({ input, emit, times, res, alive: () => !res.destroyed })
    if (res.destroyed) return
    if (end?.type !== T.RUN_ERROR) await emit(T.RUN_FINISHED, { ...ids, ...end })
    res.end()
  })
  await once(http.listen(0, '127.0.0.1'), 'listening')
  server.url = `http://127.0.0.1:${http.address().port}`
  server.stop = () => {
    http.closeAllConnections()
    return new Promise((ok) => http.close(ok))
  }
  return server
}

/** A message in pieces. */
export async function says({ emit }, messageId, ...deltas) {
  await emit(T.TEXT_MESSAGE_START, { messageId, role: 'assistant' })
  for (const delta of deltas) await emit(T.TEXT_MESSAGE_CONTENT, { messageId, delta })
  await emit(T.TEXT_MESSAGE_END, { messageId })
}

/** A call of a tool. */
export async function calls({ emit }, toolCallId, toolCallName, args, parentMessageId) {
  await emit(T.TOOL_CALL_START, { toolCallId, toolCallName, ...(parentMessageId && { parentMessageId }) })
  for (const delta of args) await emit(T.TOOL_CALL_ARGS, { toolCallId, delta })
  await emit(T.TOOL_CALL_END, { toolCallId })
}

export const answers = ({ emit }, toolCallId, content) =>
  emit(T.TOOL_CALL_RESULT, { messageId: `result-${toolCallId}`, toolCallId, content, role: 'tool' })
