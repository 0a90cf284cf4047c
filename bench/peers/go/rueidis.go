package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The documented defaults: three keys for a lock, as for several servers, although there is one.
var rueidisDefaults = rueidislock.LockerOption{}

// The settings that its page advises for one server that is new enough. TryNextAfter is longer, too: an answer that takes
// longer counts as a refusal, and the key that was set is deleted. With NoLoopTracking nobody is notified of that
// deletion: with a thousand tasks on two processors the caller would wait for ever.
var rueidisOneNode = rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true, TryNextAfter: 5 * time.Second}

const (
	rueidisDefaultsText = "defaults: KeyMajority 2 (three keys), KeyValidity 5s renewed every 2.5s, TryNextAfter 20ms"
	rueidisOneNodeText  = "KeyMajority 1, NoLoopTracking (both as its page advises for one server), KeyValidity 5s " +
		"renewed every 2.5s, TryNextAfter 5s"
)

type rueidisLocker struct {
	locker  rueidislock.Locker
	counter rueidis.Client
}

func newRueidis(url string, option rueidislock.LockerOption) (locker, error) {
	parsed, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	counter, err := rueidis.NewClient(parsed)
	if err != nil {
		return nil, err
	}
	option.ClientOption = parsed
	locker, err := rueidislock.NewLocker(option)
	return &rueidisLocker{locker, counter}, err
}

func (l *rueidisLocker) lock(name string) lock { return &rueidisLock{l.locker, name} }

func (l *rueidisLocker) countUp(key string) error {
	ctx := context.Background()
	count, err := l.counter.Do(ctx, l.counter.B().Get().Key(key).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	next := strconv.FormatInt(count+1, 10)
	return l.counter.Do(ctx, l.counter.B().Set().Key(key).Value(next).Build()).Error()
}

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
}

func (l *rueidisLock) acquire() (func() error, error) {
	held, cancel, err := l.locker.WithContext(context.Background(), l.name)
	if err != nil {
		return nil, err
	}
	return func() error {
		lost := held.Err()
		cancel()
		if lost != nil {
			return errors.New("rueidislock: the lock was lost before it was released")
		}
		return nil
	}, nil
}
