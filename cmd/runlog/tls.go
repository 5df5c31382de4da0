package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// tlsConfig is nil without a certificate. Files that were renewed are read again
// within a minute.
func (s *settings) tlsConfig() (*tls.Config, error) {
	if s.tlsCert == "" && s.tlsKey == "" {
		return nil, nil
	}
	if s.tlsCert == "" || s.tlsKey == "" {
		return nil, fmt.Errorf("%w: --tls-cert and --tls-key go together", errUsage)
	}
	c := &certificate{cert: s.tlsCert, key: s.tlsKey}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// A certificate is read from files.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	pair    *tls.Certificate
	changed time.Time // of the file
	looked  time.Time
}

func (c *certificate) load() error {
	info, err := os.Stat(c.cert)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair, c.changed, c.looked = &pair, info.ModTime(), time.Now()
	return nil
}

// get keeps the certificate that it has while a new one is incomplete.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > time.Minute {
		c.looked = time.Now()
		if info, err := os.Stat(c.cert); err == nil && !info.ModTime().Equal(c.changed) {
			_ = c.load()
		}
	}
	return c.pair, nil
}
