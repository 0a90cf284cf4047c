package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// open makes a client with go-redis's default pool, and opens a connection.
func open(url string) (*redis.Client, error) {
	parsed, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(parsed)
	return client, client.Ping(context.Background()).Err()
}

// goRedisCounter is the counter of the locks on go-redis.
type goRedisCounter struct{ client *redis.Client }

func (c goRedisCounter) countUp(key string) error {
	ctx := context.Background()
	count, err := c.client.Get(ctx, key).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return c.client.Set(ctx, key, count+1, 0).Err()
}
