// Python's standard library: http.client and readline.
import { suite } from './suite.mjs'

suite('python', {
  played: () => true,
  sentences: ['text', 'tools', 'takeover', 'unicode'],
  controls: ['text', 'tools', 'failure', 'unicode'],
})
