package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	redsyncText     = "defaults: retry after 50 to 250 ms at random"
	redsyncFastText = "retry after %d ms"
	redsyncRestText = ", 32 tries and then again; expiry 8s, not renewed; go-redis's pool"
)

type redsyncLocker struct {
	maker   *redsync.Redsync
	options []redsync.Option
	counter *redis.Client
}

func newRedsync(url string, options ...redsync.Option) (locker, error) {
	parsed, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// Each with a pool of its own, as go-redis makes it.
	copied := *parsed
	client, counter := redis.NewClient(parsed), redis.NewClient(&copied)
	for _, one := range []*redis.Client{client, counter} {
		if err := one.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
	}
	return &redsyncLocker{redsync.New(goredis.NewPool(client)), options, counter}, nil
}

func (l *redsyncLocker) lock(name string) lock {
	return &redsyncLock{l.maker.NewMutex(name, l.options...)}
}

func (l *redsyncLocker) countUp(key string) error {
	ctx := context.Background()
	count, err := l.counter.Get(ctx, key).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return l.counter.Set(ctx, key, count+1, 0).Err()
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l *redsyncLock) acquire() (func() error, error) {
	for {
		err := l.mutex.Lock()
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return l.release, nil
		case errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed):
			// It gave up; a benchmark's task wants the lock all the same, and its wait goes on.
		default:
			return nil, err
		}
	}
}

func (l *redsyncLock) release() error {
	held, err := l.mutex.Unlock()
	if err == nil && !held {
		err = errors.New("redsync: the lock was lost before it was given back")
	}
	return err
}
