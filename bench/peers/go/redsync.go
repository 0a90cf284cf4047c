package main

import (
	"errors"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

const (
	redsyncText     = "defaults: retry after 50 to 250 ms at random"
	redsyncFastText = "retry after %d ms"
	redsyncRestText = ", 32 tries and then again; expiry 8s, not renewed; go-redis's pool"
)

type redsyncLocker struct {
	goRedisCounter
	maker   *redsync.Redsync
	options []redsync.Option
}

// newRedsync locks on nodes, or on the server of the counter if there are none.
func newRedsync(url string, nodes []string, options ...redsync.Option) (locker, error) {
	counter, err := open(url)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		nodes = []string{url}
	}
	var pools []pool.Pool
	for _, node := range nodes {
		client, err := open(node)
		if err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(client))
	}
	return &redsyncLocker{goRedisCounter{counter}, redsync.New(pools...), options}, nil
}

func (l *redsyncLocker) lock(name string) lock {
	return &redsyncLock{l.maker.NewMutex(name, l.options...)}
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
			// The library gave up. The task of a benchmark tries again, and its wait goes on.
		default:
			return nil, err
		}
	}
}

func (l *redsyncLock) release() error {
	held, err := l.mutex.Unlock()
	if err == nil && !held {
		err = errors.New("redsync: the lock was lost before it was released")
	}
	return err
}
