package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// s3Config is an S3 URL, taken apart.
type s3Config struct {
	bucket, prefix string
	host           string // host[:port] of the endpoint
	secure         bool
	region         string
	pathStyle      bool
	creds          *credentials.Credentials
}

// openS3 opens s3://BUCKET[/PREFIX]?… with these parameters, all optional:
//
//	endpoint    http(s)://HOST:PORT; default: Amazon's for the region
//	region      default us-east-1
//	path_style  1: bucket in the path, not in the host name
//	access_key, secret_key, session_token
//	iam         1: credentials from the machine's role
//
// Credentials come from the URL, else from RUNLOG_S3_ACCESS_KEY and
// RUNLOG_S3_SECRET_KEY, else from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN, else from the role if iam=1 or the environment names one.
func openS3(ctx context.Context, raw string, o Options) (Store, error) {
	conf, err := parseS3(raw, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("artifacts URL: %w", err)
	}
	s, err := newS3(conf, o)
	if err != nil {
		return nil, fmt.Errorf("artifacts URL: %w", redactURL(err))
	}
	if err := s.prepare(ctx, conf.region); err != nil {
		s.Close()
		return nil, fmt.Errorf("open artifacts bucket %s at %s: %w", conf.bucket, conf.host, err)
	}
	return s, nil
}

func parseS3(raw string, getenv func(string) string) (s3Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return s3Config{}, errors.New("not a URL; use s3://BUCKET?endpoint=http://HOST:PORT and escape special characters as %XX")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return s3Config{}, errors.New("the part after ? is not a query; escape special characters as %XX")
	}
	c := s3Config{bucket: u.Host, region: q.Get("region"), pathStyle: q.Get("path_style") == "1"}
	if c.bucket == "" {
		return c, errors.New("no bucket; use s3://BUCKET?endpoint=http://HOST:PORT")
	}
	if err := s3utils.CheckValidBucketNameStrict(c.bucket); err != nil {
		return c, fmt.Errorf("bucket %q: %w", clip(c.bucket, 63), err)
	}
	if c.region == "" {
		c.region = "us-east-1"
	}
	if c.prefix, err = cleanPrefix(u.Path); err != nil {
		return c, err
	}
	if err := checkParameters(q); err != nil {
		return c, err
	}
	if err := c.setEndpoint(q.Get("endpoint")); err != nil {
		return c, err
	}
	c.creds, err = findCredentials(q, getenv)
	return c, err
}

func cleanPrefix(p string) (string, error) {
	p = strings.Trim(p, "/")
	if p == "" {
		return "", nil
	}
	for _, e := range strings.Split(p, "/") {
		if err := checkElement(e); err != nil {
			return "", fmt.Errorf("prefix element %q %w", e, err)
		}
	}
	return p + "/", nil
}

func checkParameters(q url.Values) error {
	for name, values := range q {
		switch name {
		case "endpoint", "region", "access_key", "secret_key", "session_token":
		case "path_style", "iam":
			if values[0] != "0" && values[0] != "1" {
				return fmt.Errorf("%s must be 0 or 1", name)
			}
		default:
			return fmt.Errorf("unknown parameter %q; known are endpoint, region, path_style, access_key, secret_key, session_token, iam", clip(name, 20))
		}
		if len(values) > 1 {
			return fmt.Errorf("%s is given twice", name)
		}
	}
	return nil
}

func (c *s3Config) setEndpoint(endpoint string) error {
	if endpoint == "" {
		c.host, c.secure = "s3."+c.region+".amazonaws.com", true
		return nil
	}
	e, err := url.Parse(endpoint)
	if err != nil || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" ||
		(e.Scheme != "http" && e.Scheme != "https") {
		return errors.New("endpoint must look like http://HOST:PORT or https://HOST:PORT")
	}
	c.host, c.secure = e.Host, e.Scheme == "https"
	return nil
}

func findCredentials(q url.Values, getenv func(string) string) (*credentials.Credentials, error) {
	sources := []struct{ what, access, secret, token string }{
		{"access_key and secret_key", q.Get("access_key"), q.Get("secret_key"), q.Get("session_token")},
		{"RUNLOG_S3_ACCESS_KEY and RUNLOG_S3_SECRET_KEY", getenv("RUNLOG_S3_ACCESS_KEY"), getenv("RUNLOG_S3_SECRET_KEY"), ""},
		{"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN")},
	}
	for _, s := range sources {
		if (s.access == "") != (s.secret == "") {
			return nil, fmt.Errorf("%s: one of the two is missing", s.what)
		}
		if s.access != "" {
			return credentials.NewStaticV4(s.access, s.secret, s.token), nil
		}
	}
	role := getenv("AWS_WEB_IDENTITY_TOKEN_FILE") + getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") + getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if q.Get("iam") == "1" || role != "" {
		return credentials.NewIAM(""), nil
	}
	return nil, errors.New("no credentials; set RUNLOG_S3_ACCESS_KEY and RUNLOG_S3_SECRET_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add iam=1 to use the machine's role")
}

func newS3(c s3Config, o Options) (*s3Store, error) {
	tr, err := newTransport(c.secure)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if c.pathStyle {
		lookup = minio.BucketLookupPath
	}
	// Trailing checksums stay off: over plain HTTP servers refuse them, and
	// every body sent here carries its SHA-256 in the signature anyway.
	api, err := minio.NewCore(c.host, &minio.Options{
		Creds: c.creds, Secure: c.secure, Transport: ownedBodies{tr}, Region: c.region, BucketLookup: lookup,
		MaxRetries: 4, // about a second and a half; the caller knows better what to do then
	})
	if err != nil {
		return nil, err
	}
	return &s3Store{api: api, bucket: c.bucket, prefix: c.prefix, opts: o, idle: tr.CloseIdleConnections}, nil
}

func (s *s3Store) prepare(ctx context.Context, region string) error {
	if err := s.makeBucket(ctx, region); err != nil {
		return err
	}
	return s.probe(ctx)
}

func (s *s3Store) makeBucket(ctx context.Context, region string) error {
	ok, err := s.api.BucketExists(ctx, s.bucket)
	if err != nil || ok {
		return s3Error(ctx, err)
	}
	err = s.api.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: region})
	if code := minio.ToErrorResponse(err).Code; code == minio.BucketAlreadyOwnedByYou || code == minio.BucketAlreadyExists {
		return nil // another node was faster; the probe tells whether it is ours
	}
	if err != nil {
		return fmt.Errorf("create bucket: %w", s3Error(ctx, err))
	}
	return nil
}

// probe makes sure that the server refuses to overwrite when told so. Some
// ignore the condition, and create-once would be a wish.
func (s *s3Store) probe(ctx context.Context) error {
	name := s.prefix + probeDir + writeID()
	body := []byte("runlog")
	sum := hexSum(body)
	if err := s.put(ctx, name, body, sum, minio.PutObjectOptions{}, true); err != nil {
		return fmt.Errorf("write a probe: %w", err)
	}
	defer s.remove(context.WithoutCancel(ctx), name) //nolint:errcheck // Sweep takes it then
	if err := s.put(ctx, name, body, sum, minio.PutObjectOptions{}, true); !errors.Is(err, errPrecondition) {
		return probeError("PUT", err)
	}
	up, err := s.beginUpload(ctx, name, record{})
	if err != nil {
		return fmt.Errorf("begin a probe upload: %w", err)
	}
	defer up.abort(context.WithoutCancel(ctx)) //nolint:errcheck // Sweep takes it then
	if err := up.part(ctx, body); err != nil {
		return fmt.Errorf("upload a probe: %w", err)
	}
	if err := up.complete(ctx); !errors.Is(err, errPrecondition) {
		return probeError("CompleteMultipartUpload", err)
	}
	return nil
}

func probeError(what string, err error) error {
	if err != nil {
		return fmt.Errorf("probe conditional %s: %w", what, err)
	}
	return fmt.Errorf("the server ignores If-None-Match on %s, so artifacts could be overwritten; use a server with conditional writes", what)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
