// Clients that close their connection after each answer, each in its own way. They read a
// stream to what they take for its end: the text, or an error. begun is called with the first bytes.
import { spawn } from 'node:child_process'
import http from 'node:http'
import { Agent, fetch as undiciFetch, request } from 'undici'

const accept = 'text/event-stream'

async function text(body, begun) {
  let all = ''
  for await (const part of body) {
    all += Buffer.from(part)
    begun()
  }
  return all
}

/** @type {Record<string, (url: string, begun: () => void) => Promise<string>>} */
export const closing = {
  'fetch of Node.js, Connection: close': async (url, begun) => text((await fetch(url, { headers: { accept, connection: 'close' } })).body, begun),
  'fetch of undici, pipelining 0': async (url, begun) => text((await undiciFetch(url, { headers: { accept }, dispatcher: new Agent({ pipelining: 0 }) })).body, begun),
  'request of undici, reset': async (url, begun) => text((await request(url, { headers: { accept }, reset: true })).body, begun),
  'http of Node.js, agent: false': (url, begun) => byHttp(url, { agent: false }, begun),
  'http of Node.js, keepAlive: false': (url, begun) => byHttp(url, { agent: new http.Agent({ keepAlive: false }) }, begun),
  'http.client of Python': byPython,
}

const byHttp = (url, options, begun) => new Promise((ok, no) => {
  http.get(url, { headers: { accept }, ...options }, (r) => text(r, begun).then(ok, no)).on('error', no)
})

const program = `
import http.client, sys, urllib.parse
u = urllib.parse.urlparse(sys.argv[1])
c = http.client.HTTPConnection(u.netloc)
c.request('GET', u.path, headers={'Accept': '${accept}', 'Connection': 'close'})
r = c.getresponse()
while part := r.read1(1 << 16):
    sys.stdout.buffer.write(part)
    sys.stdout.flush()
`

async function byPython(url, begun) {
  const child = spawn('python3', ['-c', program, url], { stdio: ['ignore', 'pipe', 'pipe'] })
  const exit = new Promise((ok) => child.on('close', ok))
  const [all, why, code] = await Promise.all([text(child.stdout, begun), text(child.stderr, () => {}), exit])
  if (code !== 0) throw new Error(why)
  return all
}
