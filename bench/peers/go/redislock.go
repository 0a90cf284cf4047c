package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
)

// redislockLease is the lease, which users of redislock must choose. It is that of the simplest lock in the comparison.
const redislockLease = 30 * time.Second

// redislockRetryMs is the delay in the library's own example of retries. Without a retry strategy it tries only once.
const redislockRetryMs = 100

// redislockText has a place for the delay. If the caller sets no deadline, the library gives up after the time of a lease.
const redislockText = "LinearBackoff: retry after %d ms, for 30s and then again; lease 30s, not renewed; " +
	"go-redis's pool"

type redislockLocker struct {
	goRedisCounter
	client  *redislock.Client
	options redislock.Options
}

func newRedislock(url string, retryMs int) (locker, error) {
	counter, err := open(url)
	if err != nil {
		return nil, err
	}
	client, err := open(url)
	if err != nil {
		return nil, err
	}
	backoff := redislock.LinearBackoff(time.Duration(retryMs) * time.Millisecond)
	return &redislockLocker{goRedisCounter{counter}, redislock.New(client), redislock.Options{RetryStrategy: backoff}}, nil
}

func (l *redislockLocker) lock(name string) lock { return &redislockLock{l, name} }

type redislockLock struct {
	locker *redislockLocker
	name   string
}

func (l *redislockLock) acquire() (func() error, error) {
	ctx := context.Background()
	for {
		held, err := l.locker.client.Obtain(ctx, l.name, redislockLease, &l.locker.options)
		switch {
		case err == nil:
			// Fails if the lock was lost before.
			return func() error { return held.Release(ctx) }, nil
		case errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded):
			// The library gave up. The task of a benchmark tries again, and its wait goes on.
		default:
			return nil, err
		}
	}
}
