// Readers of the plain views, each written as its users would.
import assert from 'node:assert/strict'
import { APIError } from '@anthropic-ai/sdk'
import { Stream } from '@anthropic-ai/sdk/core/streaming'
import { MessageStream } from '@anthropic-ai/sdk/lib/MessageStream'
import { EventSource } from 'eventsource'
import { resumingFetch } from '../agui/resuming-fetch.mjs'
import { program } from '../lib/program.mjs'

/** The program in Python, which does any number of streams: .read(url, path), .stop(). */
export function python() {
  const { run, stop } = program(['python3', new URL('reader.py', import.meta.url).pathname])
  return { read: (url, path) => run({ url, path: path + '?dialect=v1' }), stop }
}

/** A reducer of ?dialect=parts: messages by id, each command replaces one. It names its dialect by a header. */
export async function parts(url, path) {
  const state = { messages: {}, session: null, commands: [] }
  let last = ''
  for (let over = false; !over; ) {
    try {
      const headers = { accept: 'text/event-stream', 'runlog-dialect': 'parts', ...(last && { 'last-event-id': last }) }
      const r = await fetch(url + path, { headers })
      assert.equal(r.status, 200)
      let rest = ''
      for await (const chunk of r.body.pipeThrough(new TextDecoderStream())) {
        const blocks = (rest + chunk).split('\n\n')
        rest = blocks.pop()
        for (const b of blocks) {
          const data = /^data: (.*)$/m.exec(b)
          if (!data) continue
          last = /^id: (.*)$/m.exec(b)[1]
          const { id, command, payload } = JSON.parse(data[1])
          state.commands.push(id)
          if (command.endsWith('.message')) state.messages[payload.id] = payload
          else state.session = { ...payload, command }
        }
      }
      over = true
    } catch (e) {
      if (e instanceof assert.AssertionError) throw e
    }
  }
  return state
}

const words = ['response_start', 'tool_call_start', 'tool_call_complete', 'response_complete']

/** Four words by the package eventsource, which reconnects by itself. It names its dialect by Accept. */
export function agents(url, path) {
  return new Promise((ok, no) => {
    const seen = []
    const source = new EventSource(url + path, {
      fetch: (to, init) => fetch(to, { ...init, headers: { ...init.headers, accept: 'text/event-stream;dialect=agents' } }),
    })
    for (const word of words) {
      source.addEventListener(word, (e) => {
        const data = JSON.parse(e.data)
        seen.push({ at: e.lastEventId, ...data })
        if (word === 'response_complete') {
          source.close()
          ok(seen)
        }
      })
    }
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) no(new Error('the stream was closed')) }
  })
}

/** Messages of ?dialect=anthropic, read and put together by the official SDK; a fetch that resumes makes one stream of several. */
export async function anthropic(url, path) {
  const response = await resumingFetch()(url + path + '?dialect=anthropic', { headers: { accept: 'text/event-stream' } })
  assert.equal(response.status, 200)
  const messages = []
  let events = []
  try {
    for await (const e of Stream.fromSSEResponse(response, new AbortController())) {
      events.push(e)
      if (e.type !== 'message_stop') continue
      messages.push(await whole(events))
      events = []
    }
  } catch (e) {
    if (!(e instanceof APIError) || !e.error) throw e
    return { messages, failed: e.error.error ?? e.error }
  }
  assert.equal(events.length, 0, 'the stream ends with a message')
  return { messages }
}

const whole = async (events) => {
  const lines = new Blob(events.map((e) => JSON.stringify(e) + '\n')).stream()
  return JSON.parse(JSON.stringify(await MessageStream.fromReadableStream(lines).finalMessage()))
}
