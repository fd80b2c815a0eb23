package io.quotaplane.kafka.settings;

import java.io.IOException;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * The names that principals have in attachments, by rules as of {@code ssl.principal.mapping.rules}.
 */
public final class PrincipalNames {
    private final SslPrincipalMapper rules;

    /**
     * @throws IllegalArgumentException a rule is wrong
     */
    public PrincipalNames(String rules) {
        this.rules = SslPrincipalMapper.fromRules(rules);
    }

    /** The name of a principal; its own if no rule fits. */
    public String of(String principal) {
        try {
            return rules.getName(principal);
        } catch (IOException noRuleFits) {
            return principal;
        }
    }
}
