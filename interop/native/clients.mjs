// Clients of the native stream, one for each transport. Each keeps the data of every
// message that has an id, and comes back with the last id until its run has ended.
import assert from 'node:assert/strict'
import WebSocket from 'ws'

/**
 * @typedef {(url: string | string[], path: string, early?: () => void) => Promise<object[]>} Client
 *   url may be several, of which the last one is used again; early: a wrong client, that comes back one event before its last one, and says so
 */

/** @type {Client} Server-sent events, by fetch. */
export async function sse(url, path, early) {
  return following(url, early, async (at, last, take) => {
    const r = await fetch(at + path, { headers: { accept: 'text/event-stream', ...(last && { 'last-event-id': last }) } })
    if (r.status === 204) return true
    if (r.status === 503) return false // the edge shuts down
    assert.equal(r.status, 200)
    for await (const b of split(r.body, '\n\n')) {
      const id = /^id: (.*)$/m.exec(b), data = /^data: (.*)$/m.exec(b)
      if (id && data) take(id[1], JSON.parse(data[1]))
    }
    return true
  })
}

/** @type {Client} Lines of JSON: the position is the seq in the line, and goes into the query. */
export async function ndjson(url, path, early) {
  return following(url, early, async (at, last, take) => {
    const r = await fetch(`${at}${path}${last && '?after=' + last}`, { headers: { accept: 'application/x-ndjson' } })
    if (r.status === 204) return true
    if (r.status === 503) return false
    assert.equal(r.status, 200)
    assert.match(r.headers.get('content-type'), /^application\/x-ndjson/)
    for await (const line of split(r.body, '\n')) {
      const e = JSON.parse(line)
      if (e.seq && e.data) take(String(e.seq), e)
    }
    return true
  })
}

/** @type {Client} A WebSocket, by the package ws: the position is in the first message. */
export async function websocket(url, path, early) {
  return following(url, early, (at, last, take) => new Promise((ok, no) => {
    const socket = new WebSocket(at.replace('http', 'ws') + path, 'runlog.v1')
    socket.on('open', () => socket.send(JSON.stringify(last ? { after: last } : {})))
    socket.on('message', (text) => {
      const { id, data } = JSON.parse(text)
      if (id) take(id, data)
    })
    socket.on('error', no) // a cut handshake
    socket.on('close', (code, reason) => {
      if (code < 4000) ok(code === 1000)
      else no(new assert.AssertionError({ message: `closed with ${code} ${reason}` }))
    })
  }))
}

async function following(url, early, once) {
  const urls = [url].flat()
  const got = []
  let last = ''
  for (let over = false; !over; ) {
    const at = urls.length > 1 ? urls.shift() : urls[0]
    const after = early && last ? String(Number(last) - 1) : last
    if (after !== last) early()
    try {
      over = await once(at, after, (id, data) => { last = id; got.push(data) })
    } catch (e) {
      if (e.name === 'AssertionError') throw e
    }
  }
  return got.filter((e) => e.type) // without cursor moves
}

async function* split(body, end) {
  let rest = ''
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    const whole = (rest + chunk).split(end)
    rest = whole.pop()
    yield* whole
  }
}
