// Package redact takes secrets out of text and JSON before they reach the log,
// a log line or a client: whole, as a stream of pieces, or as a slog.Handler.
//
// What is taken out is replaced by [redacted]; bytes around it stay as they
// are. Neighbouring secrets share one mark.
//
// # What is caught everywhere
//
// Known values (Options.Secrets, Redactor.Learn, and whatever Secrets
// resolved), wherever they stand, also inside a word, in these forms: as they
// are; percent-encoded, as the usual libraries do it, with either case of the
// digits; base64, standard and URL-safe, at any of the three alignments inside
// longer data (of the first and last char, which also hold neighbouring bits,
// up to 4 bits may remain); escaped for a JSON string, once or twice. A value
// of less than 6 bytes is ignored: it would be found in ordinary text by
// chance. A form of more than 1 KiB is searched for in pieces of 1 KiB.
//
// Token shapes, where a word begins: sk-ant-…, sk-… (20 bytes that are random
// or one word), sk_live_, sk_test_, rk_live_, ghp_ gho_ ghu_ ghs_ ghr_,
// github_pat_, glpat-, gsk_, hf_, npm_, xox[abeprs]-, AIza…, AKIA and ASIA with
// exactly 16 capitals and digits, JWTs (eyJ….….…), "Bearer " with 16 bytes and
// a digit or 32 and a capital, "Basic " with base64 of name:password, private key
// blocks (-----BEGIN … PRIVATE KEY----- to its end marker, a quote or 16 KiB),
// and the password in scheme://user:password@host.
//
// # Sensitive names
//
// A name is sensitive if it ends in password, passwd, passphrase, secret,
// token, authorization, cookie, credential, api key, private key, access key
// and the like (keys.go has the list), or is one of Options.Keys; in any case,
// as snake_case, kebab-case, camelCase or one word, with digits after it or
// not. Not sensitive are tokens that are counted or that are places in a list
// (tokens, max_tokens, input_token, token_count, next_page_token,
// progressToken), names that ask (has_password), and pwd alone.
//
// The value of a sensitive name is replaced whole: in JSON whatever its type
// (null and "" stay). In text, after "name": or 'name':, also with the quotes
// escaped as in JSON within JSON: strings, numbers, booleans, objects, arrays.
// And in text without quotes only where it is no prose or code: NAME=value with
// the name in capitals, --name=value, ?name=value and &name=value and
// ;name=value, Cookie: a=b, and Authorization: or hyphenated-name: with a value
// of 10 bytes that has a digit. A value that begins like a variable or a hole
// (${X}, $X, <x>, {x}, [x], ***, ...) stays.
//
// # What is not caught
//
// Unknown secrets without a known shape or name; name = value with spaces,
// lower-case name=value and YAML, which look like code; {"name": "API_KEY",
// "value": …} pairs; bearer tokens under 16 bytes; the user part of a URL;
// secrets in hex, compressed, encrypted, cut into pieces by line ends or
// markup, or encoded in ways or depths not listed; values of which a part only
// is shown; sensitive keys spelled with \u escapes in text that is not whole
// JSON (JSON decodes them). Values that are not UTF-8 are only found encoded.
//
// # Text and JSON
//
// Stream does what String does, not what JSON does: a stream of argument text
// may differ from what Args makes of the whole where keys or values are
// written with unusual escapes. String keeps valid JSON valid, unless a known
// value is itself a number or spans JSON's own punctuation.
package redact
