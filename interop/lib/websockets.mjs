// WebSockets through the proxy: what the edge sends is counted by messages.
import http from 'node:http'

/**
 * Passes a handshake on, and then what both sides send.
 *
 * @param {(text: string) => boolean} passed is told of each message that the client was sent; true: cut here
 */
export function passSocket(req, socket, head, edge, passed) {
  const target = new URL(req.url, edge)
  const up = http.request(target, { headers: { ...req.headers, host: target.host }, agent: false })
  up.on('upgrade', (res, from, first) => {
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${Object.entries(res.headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n`)
    const hangUp = () => { from.destroy(); socket.destroySoon() }
    const read = frames((raw, text) => {
      if (socket.destroyed) return
      socket.write(raw)
      if (text !== null && passed(text)) hangUp()
    })
    from.on('data', read)
    if (first.length) read(first)
    if (head.length) from.write(head)
    socket.pipe(from)
    from.on('end', () => socket.end()).on('error', () => socket.destroy()).on('close', () => socket.destroySoon())
    socket.on('error', () => from.destroy()).on('close', () => from.destroy())
  })
  up.on('response', (res) => { // refused
    socket.write(`HTTP/1.1 ${res.statusCode} refused\r\nconnection: close\r\n\r\n`)
    res.pipe(socket)
  })
  up.on('error', () => socket.destroy())
  up.end()
}

// frames takes what a server sends apart (RFC 6455): fn gets each frame as it is,
// and with the last one of a text message the text.
function frames(fn) {
  let rest = Buffer.alloc(0)
  let parts = []
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    for (let size; (size = whole(rest)) !== null; ) {
      const raw = rest.subarray(0, size.header + size.payload)
      rest = rest.subarray(raw.length)
      const control = raw[0] & 8
      if (!control) parts.push(raw.subarray(size.header))
      const last = !control && raw[0] & 0x80
      fn(raw, last ? Buffer.concat(parts).toString() : null)
      if (last) parts = []
    }
  }
}

// whole is the size of the frame that bytes begin with, null if they do not hold it.
function whole(b) {
  if (b.length < 2) return null
  const short = b[1] & 0x7f
  const header = { 126: 4, 127: 10 }[short] ?? 2
  if (b.length < header) return null
  const payload = header === 2 ? short : header === 4 ? b.readUInt16BE(2) : Number(b.readBigUInt64BE(2))
  return b.length < header + payload ? null : { header, payload }
}
