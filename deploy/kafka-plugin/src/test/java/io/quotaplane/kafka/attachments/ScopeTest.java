package io.quotaplane.kafka.attachments;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.apache.kafka.common.utils.Sanitizer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ScopeTest {
    @ParameterizedTest
    @ValueSource(strings = {"alice", "CN=app 1*~+", "<default>", "jürgen", "😀", "a.b-c_d/:%"})
    void namesAreEncodedAsByKafka(String name) {
        assertEquals(Sanitizer.sanitize(name), Scope.encode(name));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "user=alice",
                "client=app-1",
                "user=alice,client=app-1",
                "user=<default>",
                "user=<default>,client=<default>",
                "user=CN%3Dapp%201%2A%7E,client=%3Cdefault%3E",
                "client=j%C3%BCrgen",
            })
    void scopesAreParsed(String name) {
        assertEquals(name, Scope.parse(name).toString());
    }

    @Test
    void eachSideIsWhereItBelongs() {
        assertEquals(new Scope("a", null), Scope.parse("user=a"));
        assertEquals(new Scope(null, "b"), Scope.parse("client=b"));
        assertEquals(new Scope("a", "<default>"), Scope.parse("user=a,client=<default>"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "acme/orders",
                "tenant=acme",
                "user=",
                "user=a,client=",
                "client=b,user=a",
                "user=a,user=b",
                "user=a,client=b,client=c",
                "user=a,",
                "username=a",
                "user=a::b",
                "user=a=b",
                "user=a b",
                "user=a+b",
                "user=jürgen",
                "user=j%c3%bcrgen",
                "user=%61",
                "user=%",
                "user=%zz",
                "user=%C3",
                "user=%ED%A0%80",
                "user=a~b",
                "user=a*b",
                "user=a\n",
            })
    void otherNamesAreNoScopes(String name) {
        assertNull(Scope.parse(name));
    }
}
