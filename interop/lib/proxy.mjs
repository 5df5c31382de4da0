// A proxy in front of the edges that cuts streams: after so many wire messages
// the connection is reset, and the next request goes to the other edge.
import http from 'node:http'
import { edges } from './stage.mjs'
import { passSocket } from './websockets.mjs'

export class Proxy {
  /** Every request: {method, url, headers, body, edge}. */
  requests = []
  /** Wire messages passed on: SSE blocks with data, lines, or those of a WebSocket. */
  messages = 0
  /** Connections that were cut. */
  cuts = 0
  /** Streams that an edge broke off; the next request goes to the next edge then too. */
  breaks = 0

  #server
  #sockets = new Set()
  #ids = ['']

  /**
   * @param {object} o
   * @param {number} [o.after] cut after so many messages of a stream
   * @param {number} [o.times] how many streams are cut (1)
   * @param {boolean} [o.reset] cut by a reset, which also loses what the client has not read yet;
   *   else the client gets all of the last message, and then a body that ends too early
   * @param {number} [o.shred] send so many bytes at a time: readers must not count on whole messages
   * @param {(req: {url: string, headers: object, body: Buffer}, ids: string[]) => any} [o.tamper]
   *   changes what is asked of the edge; ids are those of the messages that were passed on
   * @param {string[]} [o.to] edges, in turn
   * @param {boolean} [o.sockets] pass WebSockets
   */
  static async start(o = {}) {
    const p = new Proxy()
    const to = o.to ?? edges
    const { times = 1 } = o
    p.#server = http.createServer(async (req, res) => {
      const ask = { url: req.url, headers: { ...req.headers }, body: await bodyOf(req) }
      const edge = to[(p.cuts + p.breaks) % to.length]
      p.requests.push({ method: req.method, ...ask, edge })
      o.tamper?.(ask, p.#ids)
      p.#pass(req.method, ask, edge, res, p.cuts < times ? o.after ?? Infinity : Infinity, o)
    })
    // Else what asks for HTTP/2, as Java does, would end here, and not get its answer over HTTP/1.1.
    if (o.sockets) p.#server.on('upgrade', (req, socket, head) => {
      const edge = to[(p.cuts + p.breaks) % to.length]
      const after = p.cuts < times ? o.after ?? Infinity : Infinity
      let count = 0
      p.requests.push({ method: req.method, url: req.url, headers: req.headers, edge })
      passSocket(req, socket, head, edge, (text) => {
        if (/"event":"(heartbeat|position)"/.test(text)) return false
        p.messages++
        if (++count !== after) return false
        p.cuts++
        return true
      })
    })
    p.#server.on('connection', (s) => {
      p.#sockets.add(s)
      s.on('close', () => p.#sockets.delete(s))
      s.setNoDelay(true)
    })
    await new Promise((ok) => p.#server.listen(0, '127.0.0.1', ok))
    p.url = `http://127.0.0.1:${p.#server.address().port}`
    return p
  }

  // What still streams may end first: a client that gave up may not have hung up.
  async stop() {
    const closed = new Promise((ok) => this.#server.close(ok))
    const impatient = setTimeout(() => { for (const s of this.#sockets) s.destroy() }, 2000)
    while (this.#sockets.size) {
      this.#server.closeIdleConnections()
      await new Promise((ok) => setTimeout(ok, 2))
    }
    clearTimeout(impatient)
    await closed
  }

  #pass(method, ask, edge, res, after, { shred, reset }) {
    const target = new URL(ask.url, edge)
    delete ask.headers.host
    const up = http.request(target, { method, headers: { ...ask.headers, host: target.host }, agent: false }, (from) => {
      res.writeHead(from.statusCode, from.headers)
      const kind = from.headers['content-type'] ?? ''
      const ends = kind.startsWith('text/event-stream') ? '\n\n' : kind.startsWith('application/x-ndjson') ? '\n' : null
      if (!ends) return void from.pipe(res)
      let rest = Buffer.alloc(0)
      let passed = 0
      let ours = false
      from.on('data', (chunk) => {
        rest = Buffer.concat([rest, chunk])
        for (let i; (i = rest.indexOf(ends)) >= 0; ) {
          if (res.destroyed || ours) return
          const block = rest.subarray(0, i + ends.length)
          rest = rest.subarray(i + ends.length)
          send(res, block, shred)
          if (!this.#counts(block.toString(), ends)) continue
          if (++passed === after) {
            this.cuts++
            ours = true
            up.destroy()
            hangUp(res, reset)
            return
          }
        }
      })
      from.on('end', () => { if (!res.destroyed) res.end(rest) })
      from.on('error', () => { // the edge broke off: so do we
        if (res.destroyed || ours) return
        this.breaks++
        res.destroy()
      })
    })
    up.on('error', () => res.destroy())
    res.on('close', () => up.destroy())
    up.end(ask.body)
  }

  #counts(block, ends) {
    const id = /^id: ?(.*)$/m.exec(block)
    if (id) this.#ids.push(id[1])
    // What depends on time is no message of the run.
    const passing = /^event: (heartbeat|position)$/m.test(block) || /"dev\.runlog\/type":"heartbeat"/.test(block) || /^\{("jsonrpc":"2.0","method":"agent.event","params":\{)?"type":"(ping|heartbeat|position)"/.test(block)
    if (passing || (ends === '\n\n' && !/^data:/m.test(block))) return false
    this.messages++
    return true
  }
}

function send(res, block, shred) {
  if (!shred) return void res.write(block)
  for (let i = 0; i < block.length; i += shred) res.write(block.subarray(i, i + shred))
}

// A chunked body without its last chunk: no client takes that for the end.
function hangUp(res, reset) {
  if (reset) res.socket?.resetAndDestroy()
  else res.socket?.destroySoon()
}

async function bodyOf(req) {
  const parts = []
  for await (const p of req) parts.push(p)
  return Buffer.concat(parts)
}
